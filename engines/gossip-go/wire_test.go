package main

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// body decodes what frame made, as any msgpack reader sees it.
func body(t *testing.T, framed []byte) []any {
	t.Helper()
	raw, err := readFrame(bytes.NewReader(framed))
	if err != nil {
		t.Fatal(err)
	}
	var items []any
	if err := msgpack.Unmarshal(raw, &items); err != nil {
		t.Fatal(err)
	}
	return items
}

func TestFrameHasTagAndFields(t *testing.T) {
	framed, err := frame("message", 1, "topic", []byte("data"), "source", int64(5))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"message", int8(1), "topic", []byte("data"), "source", int64(5)}
	if got := body(t, framed); !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func TestFramesAreTakenOneByOne(t *testing.T) {
	var stream bytes.Buffer
	for range 3 {
		framed, err := frame("published", 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		stream.Write(framed)
	}
	whole := stream.Len()
	for range 3 {
		if _, err := readFrame(&stream); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readFrame(&stream); !errors.Is(err, io.EOF) {
		t.Errorf("after %d bytes: %v, want io.EOF", whole, err)
	}
}

func TestBadFramesAreErrors(t *testing.T) {
	for name, stream := range map[string][]byte{
		"too long": {0xff, 0xff, 0xff, 0xff},
		"cut":      {0, 0, 0, 5, 1, 2},
		"no body":  {0, 0, 0, 5},
	} {
		if _, err := readFrame(bytes.NewReader(stream)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want an error other than io.EOF", name, err)
		}
	}
}

func encoded(t *testing.T, items ...any) []byte {
	t.Helper()
	raw, err := msgpack.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCommands(t *testing.T) {
	for _, one := range []struct {
		items []any
		want  any
	}{
		{[]any{"publish", 7, 1, "t", []byte("x")}, publishCommand{7, 1, "t", []byte("x")}},
		{[]any{"dial", 7, 1, "/ip4"}, addressCommand{7, 1, "/ip4", false}},
		{[]any{"keep", 7, 1, "/ip4"}, addressCommand{7, 1, "/ip4", true}},
		{[]any{"get_stats", 7, 1}, statsCommand{7, 1}},
		{
			// whole numbers stand for floats where Python was given one, and fields of the other engine are skipped
			[]any{"start", map[string]any{"publish_rate": 20, "engine": "go", "peers": []any{map[string]any{"dht": true}}}},
			startCommand{settings{PublishRate: 20, Peers: []peerSettings{{DHT: true}}}},
		},
	} {
		got, err := decodeCommand(encoded(t, one.items...))
		if err != nil || !reflect.DeepEqual(got, one.want) {
			t.Errorf("%v: got %#v (%v), want %#v", one.items, got, err, one.want)
		}
	}
}

func TestUnknownCommandsAreErrors(t *testing.T) {
	for _, raw := range [][]byte{{}, {0xc1}, encoded(t, "message", 1), encoded(t, "publish", 1), encoded(t, 5)} {
		if got, err := decodeCommand(raw); err == nil {
			t.Errorf("%x: got %#v, want an error", raw, got)
		}
	}
}
