package main

import (
	"encoding/binary"
	"hash/maphash"
	"sync"

	pb "github.com/libp2p/go-libp2p-pubsub/pb"
)

const maxPending = 65_536

// pending keeps which messages wait for the check of their signature. The router knows a copy only once that check is
// through: until then it would queue every further copy and check it, too, which on a busy machine is most of the work.
// A copy is one in all its bytes, so that a forged message cannot stand in for the true one.
type pending struct {
	mutex sync.Mutex
	seed  maphash.Seed
	keys  map[uint64]struct{}
}

func newPending() *pending {
	return &pending{seed: maphash.MakeSeed(), keys: make(map[uint64]struct{})}
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

// begin notes a message that is about to be queued; false when a copy of it waits already.
func (p *pending) begin(message *pb.Message) bool {
	key := p.key(message)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, waits := p.keys[key]; waits {
		return false
	}
	if len(p.keys) >= maxPending { // more than the queue holds: nothing is known for certain any more
		clear(p.keys)
	}
	p.keys[key] = struct{}{}
	return true
}

// end forgets a message that has been checked or refused.
func (p *pending) end(message *pb.Message) {
	key := p.key(message)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.keys, key)
}
