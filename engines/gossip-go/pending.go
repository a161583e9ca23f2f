package main

import (
	"encoding/binary"
	"hash/maphash"
	"sync"

	pb "github.com/libp2p/go-libp2p-pubsub/pb"
)

// maxPending is the room of the router's queue of checks; nodes have 32. Two minutes at 1 000 messages a second: on a
// machine that starves us they are late, not lost.
const maxPending = 131_072

// pending keeps which messages wait for the check of their signature. The router knows a copy only once that check is
// through: until then it would queue every further copy and check it, too, which on a busy machine is most of the work.
// A copy is one in all its bytes, so that a forged message cannot stand in for the true one.
type pending struct {
	mutex    sync.Mutex
	seed     maphash.Seed
	sizes    map[uint64]int
	bytes    int
	maxBytes int
}

func newPending(maxBytes int) *pending {
	return &pending{seed: maphash.MakeSeed(), sizes: make(map[uint64]int), maxBytes: maxBytes}
}

func (p *pending) key(message *pb.Message) uint64 {
	var hash maphash.Hash
	hash.SetSeed(p.seed)
	for _, part := range [][]byte{
		message.GetFrom(), message.GetSeqno(), message.GetSignature(), message.GetKey(), []byte(message.GetTopic()),
		message.GetData(),
	} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = hash.Write(length[:]) // never fails
		_, _ = hash.Write(part)
	}
	return hash.Sum64()
}

// begin notes a message that is about to be queued; first is false when a copy of it waits already, and room when it
// would be one too many.
func (p *pending) begin(message *pb.Message) (first, room bool) {
	key, size := p.key(message), message.Size()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, waits := p.sizes[key]; waits {
		return false, true
	}
	if len(p.sizes) >= maxPending || p.bytes+size > p.maxBytes {
		return true, false
	}
	p.sizes[key] = size
	p.bytes += size
	return true, true
}

// end forgets a message that has been checked or refused.
func (p *pending) end(message *pb.Message) {
	key := p.key(message)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.bytes -= p.sizes[key]
	delete(p.sizes, key)
}
