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
	p := newPending(1 << 20)
	begin := func(m *pb.Message) bool {
		first, room := p.begin(m)
		return first && room
	}
	if !begin(message("x", "s")) || begin(message("x", "s")) {
		t.Error("a copy was taken for another message")
	}
	for _, forged := range []*pb.Message{message("y", "s"), message("x", "r"), message("xs", "")} {
		if !begin(forged) {
			t.Errorf("%v was taken for a copy", forged)
		}
	}
	p.end(message("x", "s"))
	if !begin(message("x", "s")) {
		t.Error("a message that was checked still waits")
	}
}

func TestPendingIsBounded(t *testing.T) {
	numbered := func(number, size int) *pb.Message {
		return &pb.Message{Seqno: []byte{byte(number), byte(number >> 8), byte(number >> 16)}, Data: make([]byte, size)}
	}
	p := newPending(1000)
	for number := range 10 {
		if _, room := p.begin(numbered(number, 300)); room != (number < 3) {
			t.Errorf("message %d: room %v", number, room)
		}
	}
	p.end(numbered(0, 300))
	p.end(numbered(9, 300)) // never waited
	if _, room := p.begin(numbered(10, 300)); !room {
		t.Error("the place of a checked message is not free")
	}
	p = newPending(1 << 30)
	for number := range maxPending + 10 {
		p.begin(numbered(number, 0))
	}
	if len(p.sizes) != maxPending {
		t.Errorf("%d messages wait", len(p.sizes))
	}
}
