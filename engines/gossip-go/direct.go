package main

import (
	"sync/atomic"

	"github.com/multiversx/mx-chain-communication-go/p2p"
	"github.com/multiversx/mx-chain-core-go/core"
)

// requests counts the direct messages that have passed the messenger's own checks. Nodes ask any peer of a topic for
// data; we have none, so they get no answer, ask somebody else, and rate us lower as a source.
type requests struct {
	p2p.MessageHandler // of which the direct sender calls the one method below
	count              atomic.Uint64
}

func (r *requests) ProcessReceivedMessage(p2p.MessageP2P, core.PeerID, p2p.MessageHandler) ([]byte, error) {
	r.count.Add(1)
	return nil, nil
}

func (r *requests) IsInterfaceNil() bool { return r == nil }
