package main

import (
	"context"
	"encoding/binary"
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// flow is what is under way to one remote peer: what the router queued, less what its stream took.
type flow struct {
	frames, publishes int
	bytes             int64
}

// flows counts what the router's queues hold. The library tells what it queues (SendRPC) but not what it writes, so
// that is counted at the streams: it writes each frame by one call.
type flows struct {
	mutex     sync.Mutex
	of        map[peer.ID]*flow
	maxFrames int
	maxBytes  int64
}

func newFlows(maxFrames int, maxBytes int64) *flows {
	return &flows{of: make(map[peer.ID]*flow), maxFrames: maxFrames, maxBytes: maxBytes}
}

// queued counts a frame the router put into a peer's queue; false when more bytes wait than one peer may leave waiting.
func (f *flows) queued(to peer.ID, rpc *pubsub.RPC) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	one := f.of[to]
	if one == nil {
		one = &flow{}
		f.of[to] = one
	}
	one.frames++
	one.bytes += int64(rpc.Size())
	if len(rpc.GetPublish()) > 0 {
		one.publishes++
	}
	return one.bytes <= f.maxBytes || one.frames == 1
}

// written counts a frame that a peer's stream took.
func (f *flows) written(to peer.ID, frame []byte) {
	size, prefix := binary.Uvarint(frame)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	one := f.of[to]
	if one == nil || one.frames == 0 || prefix <= 0 {
		return
	}
	one.frames--
	one.bytes -= int64(size)
	if holdsMessages(frame[prefix:]) && one.publishes > 0 {
		one.publishes--
	}
}

// holdsMessages tells whether a pubsub frame begins with its field 2, `publish`.
func holdsMessages(rpc []byte) bool { return len(rpc) > 0 && rpc[0] == 2<<3|2 }

// gone forgets a peer; the frames it never took, with messages and without.
func (f *flows) gone(who peer.ID) (publishes, controls int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	one := f.of[who]
	if one == nil {
		return 0, 0
	}
	delete(f.of, who)
	return one.publishes, one.frames - one.publishes
}

// hasRoom tells whether a peer would take a frame of so many bytes.
func (f *flows) hasRoom(who peer.ID, size int) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	one := f.of[who]
	return one == nil || (one.frames < f.maxFrames && (one.bytes+int64(size) <= f.maxBytes || one.frames == 0))
}

// unsent is the number of frames that wait for all peers together.
func (f *flows) unsent() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	total := 0
	for _, one := range f.of {
		total += one.frames
	}
	return total
}

// countingHost lets the router write through streams that are counted.
type countingHost struct {
	host.Host
	flows *flows
}

func (h countingHost) NewStream(ctx context.Context, to peer.ID, ids ...protocol.ID) (network.Stream, error) {
	stream, err := h.Host.NewStream(ctx, to, ids...)
	if err != nil {
		return nil, err
	}
	return &countingStream{Stream: stream, to: to, flows: h.flows}, nil
}

// countingStream counts the frames written to it. The first is the router's greeting, which it does not report queued.
type countingStream struct {
	network.Stream
	to      peer.ID
	flows   *flows
	greeted bool
}

func (s *countingStream) Write(frame []byte) (int, error) {
	n, err := s.Stream.Write(frame)
	if err == nil && s.greeted {
		s.flows.written(s.to, frame)
	}
	s.greeted = true
	return n, err
}
