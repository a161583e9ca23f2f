package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// taken closes an outlet after its pieces are read, and returns the tags in order.
func taken(t *testing.T, o *outlet, pieces int) []any {
	t.Helper()
	var stream bytes.Buffer
	for range pieces {
		stream.Write(o.next())
	}
	var tags []any
	for {
		raw, err := readFrame(&stream)
		if errors.Is(err, io.EOF) {
			return tags
		}
		var framed bytes.Buffer
		framed.Write([]byte{0, 0, byte(len(raw) >> 8), byte(len(raw))})
		framed.Write(raw)
		items := body(t, framed.Bytes())
		if items[0] == "message" {
			tags = append(tags, string(items[3].([]byte)))
		} else {
			tags = append(tags, items[0])
		}
	}
}

func TestOldestMessagesGoAndAnswersStay(t *testing.T) {
	o := newOutlet(2, 1<<20)
	o.answer("published", 1, 1)
	for _, data := range []string{"a", "b", "c"} {
		o.message(0, "t", []byte(data), "s", 1)
	}
	got := taken(t, o, 1)
	if len(got) != 3 || got[0] != "published" || got[1] != "b" || got[2] != "c" || o.droppedSoFar() != 1 {
		t.Errorf("got %v, %d dropped", got, o.droppedSoFar())
	}
}

func TestBytesAreBoundedToo(t *testing.T) {
	o := newOutlet(100, 500)
	for range 5 {
		o.message(0, "t", make([]byte, 200), "s", 1)
	}
	if o.droppedSoFar() != 3 || len(o.messages) != 2 {
		t.Errorf("%d dropped, %d kept", o.droppedSoFar(), len(o.messages))
	}
}

func TestClosedOutletEndsItsWriter(t *testing.T) {
	o := newOutlet(1, 1)
	o.close()
	o.drain(io.Discard)
}
