package main

import (
	"testing"

	pb "github.com/libp2p/go-libp2p-pubsub/pb"
)

func TestOnlyTrueCopiesWaitOnce(t *testing.T) {
	topic := "t"
	message := func(data, signature string) *pb.Message {
		return &pb.Message{From: []byte("a"), Seqno: []byte("1"), Topic: &topic, Data: []byte(data), Signature: []byte(signature)}
	}
	p := newPending()
	if !p.begin(message("x", "s")) || p.begin(message("x", "s")) {
		t.Error("a copy was taken for another message")
	}
	for _, forged := range []*pb.Message{message("y", "s"), message("x", "r"), message("xs", "")} {
		if !p.begin(forged) {
			t.Errorf("%v was taken for a copy", forged)
		}
	}
	p.end(message("x", "s"))
	if !p.begin(message("x", "s")) {
		t.Error("a message that was checked still waits")
	}
}

func TestPendingIsBounded(t *testing.T) {
	p := newPending()
	for number := range maxPending + 10 {
		p.begin(&pb.Message{Seqno: []byte{byte(number), byte(number >> 8), byte(number >> 16)}})
	}
	if len(p.keys) > maxPending {
		t.Errorf("%d messages kept", len(p.keys))
	}
}
