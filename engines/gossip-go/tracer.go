package main

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

const (
	topicLength   = 256
	topicsARemote = 100
)

var errTooManyTopics = errors.New("a remote with too many topics, or too long a name of one")

// tracer counts what the router does and keeps who is subscribed to what and in which mesh. The router calls it from
// its own loop and from its validators, so nothing here waits.
type tracer struct {
	own     peer.ID
	ours    map[string]bool // topics we are subscribed to
	flows   *flows
	waiting *pending
	deliver func(topic string, data []byte, source peer.ID)
	expel   func(who peer.ID, reason string)

	mutex       sync.Mutex
	subscribers map[string]map[peer.ID]struct{}
	mesh        map[string]map[peer.ID]struct{}
	topics      map[string]topicStats
	total       peerStats
	topicsOf    map[peer.ID]int
	heard       map[peer.ID]time.Time // when a peer sent its last frame
	leaving     map[peer.ID]struct{}

	// Of the one message that is being published:
	seqno  []byte
	taken  int
	copies int
}

func newTracer(
	own peer.ID, topics []string, flows *flows, waiting *pending, deliver func(string, []byte, peer.ID),
	expel func(who peer.ID, reason string),
) *tracer {
	ours := make(map[string]bool)
	for _, topic := range topics {
		ours[topic] = true
	}
	return &tracer{
		own: own, ours: ours, flows: flows, waiting: waiting, deliver: deliver, expel: expel,
		subscribers: make(map[string]map[peer.ID]struct{}), mesh: make(map[string]map[peer.ID]struct{}),
		topics: make(map[string]topicStats), topicsOf: make(map[peer.ID]int),
		heard: make(map[peer.ID]time.Time), leaving: make(map[peer.ID]struct{}),
	}
}

func (t *tracer) count(topic string, change func(*topicStats)) {
	stats := t.topics[topic]
	change(&stats)
	t.topics[topic] = stats
}

// DeliverMessage is called for each new message of others, before the router forwards it.
func (t *tracer) DeliverMessage(msg *pubsub.Message) {
	topic := msg.GetTopic()
	t.mutex.Lock()
	t.total.Delivered++
	t.count(topic, func(s *topicStats) { s.Delivered++ })
	t.mutex.Unlock()
	t.deliver(topic, msg.GetData(), msg.GetFrom())
}

func (t *tracer) DuplicateMessage(msg *pubsub.Message) {
	t.waiting.end(msg.Message)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.total.Duplicates++
	t.count(msg.GetTopic(), func(s *topicStats) { s.Duplicates++ })
}

func (t *tracer) RejectMessage(msg *pubsub.Message, reason string) {
	t.waiting.end(msg.Message)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	switch reason {
	case pubsub.RejectValidationQueueFull, pubsub.RejectValidationThrottled:
		t.total.DroppedValidation++
	case pubsub.RejectInvalidSignature:
		// The others have been told not to send this message, true or not. No node passes on what it has not checked.
		t.total.Invalid++
		if _, connected := t.heard[msg.ReceivedFrom]; connected {
			t.letGo(msg.ReceivedFrom, reason)
		}
	default:
		t.total.Invalid++
	}
}

func (t *tracer) SendRPC(rpc *pubsub.RPC, to peer.ID) {
	hasRoom := t.flows.queued(to, rpc)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !hasRoom {
		t.letGo(to, "takes too little") // the router's queues are bounded in frames alone
	}
	for _, message := range rpc.GetPublish() {
		if t.isCurrent(message) {
			t.taken++
			t.copies++
		}
	}
}

func (t *tracer) DropRPC(rpc *pubsub.RPC, _ peer.ID) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, message := range rpc.GetPublish() {
		if t.isCurrent(message) {
			t.copies++
		}
	}
	if messages := len(rpc.GetPublish()); messages > 0 {
		t.lose(messages, 0)
	} else {
		t.lose(0, 1)
	}
}

// letGo lets go of a connected peer, once.
func (t *tracer) letGo(who peer.ID, reason string) {
	if _, already := t.leaving[who]; !already {
		t.leaving[who] = struct{}{}
		t.expel(who, reason)
	}
}

func (t *tracer) lose(messages, controls int) {
	t.total.DroppedOutbound += uint64(messages)
	t.total.DroppedControl += uint64(controls)
}

func (t *tracer) RemovePeer(who peer.ID) {
	publishes, controls := t.flows.gone(who)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.lose(publishes, controls)
	for _, members := range t.mesh {
		delete(members, who)
	}
	for topic := range t.subscribers {
		t.unsubscribe(who, topic)
	}
	delete(t.topicsOf, who)
	delete(t.heard, who)
	delete(t.leaving, who)
}

// inspect sees each incoming frame before the router does; an error makes the router ignore it.
func (t *tracer) inspect(from peer.ID, rpc *pubsub.RPC) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.heard[from] = time.Now()
	for _, change := range rpc.GetSubscriptions() {
		topic := change.GetTopicid()
		if !change.GetSubscribe() {
			t.unsubscribe(from, topic)
			continue
		}
		if len(topic) > topicLength || t.topicsOf[from] >= topicsARemote {
			t.total.Invalid++
			return errTooManyTopics
		}
		if add(t.subscribers, topic, from) {
			t.topicsOf[from]++
		}
	}
	rpc.Publish = t.withoutCopies(rpc.GetPublish())
	return nil
}

// withoutCopies leaves out copies of messages that wait to be checked, and, counted, what is too much to wait. Of topics
// that are not ours the router tells nothing: those pass.
func (t *tracer) withoutCopies(messages []*pb.Message) []*pb.Message {
	first := messages[:0]
	for _, message := range messages {
		if t.ours[message.GetTopic()] {
			isFirst, room := t.waiting.begin(message)
			if !isFirst {
				t.total.Duplicates++
				t.count(message.GetTopic(), func(s *topicStats) { s.Duplicates++ })
				continue
			}
			if !room {
				t.total.DroppedValidation++
				continue
			}
		}
		first = append(first, message)
	}
	return first
}

func (t *tracer) unsubscribe(who peer.ID, topic string) {
	if _, subscribed := t.subscribers[topic][who]; !subscribed {
		return
	}
	t.topicsOf[who]--
	delete(t.subscribers[topic], who)
	if len(t.subscribers[topic]) == 0 {
		delete(t.subscribers, topic)
	}
}

func (t *tracer) Graft(who peer.ID, topic string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	add(t.mesh, topic, who)
}

func (t *tracer) Prune(who peer.ID, topic string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.mesh[topic], who)
}

func (t *tracer) isCurrent(message *pb.Message) bool {
	return bytes.Equal(message.GetSeqno(), t.seqno) && peer.ID(message.GetFrom()) == t.own
}

// accept is the router's validator: it accepts every message, and learns the sequence number of our own.
func (t *tracer) accept(_ context.Context, from peer.ID, message *pubsub.Message) bool {
	t.waiting.end(message.Message)
	if from == t.own {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		t.seqno, t.taken, t.copies = message.GetSeqno(), 0, 0
		t.total.Published++
		t.count(message.GetTopic(), func(s *topicStats) { s.Published++ })
	}
	return true
}

// sent tells of our own message that was published last how many peers' queues took it, and whether the router has
// begun to send it.
func (t *tracer) sent() (taken int, begun bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.taken, t.copies > 0
}

func (t *tracer) subscribersOf(topic string) []peer.ID {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	members := make([]peer.ID, 0, len(t.subscribers[topic]))
	for member := range t.subscribers[topic] {
		members = append(members, member)
	}
	return members
}

func (t *tracer) heardSince(who peer.ID, began time.Time) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.heard[who].After(began)
}

func (t *tracer) meshSize(topic string) int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return len(t.mesh[topic])
}

// isIn tells whether a peer is subscribed to one of the topics, and whether it is in the mesh of any.
func (t *tracer) isIn(who peer.ID, topics []string) (useful, meshed bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, topic := range topics {
		_, subscribed := t.subscribers[topic][who]
		_, member := t.mesh[topic][who]
		useful, meshed = useful || subscribed, meshed || member
	}
	return useful, meshed
}

// stats returns the counters, and of every topic also who is there now.
func (t *tracer) stats() peerStats {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	result := t.total
	result.Topics = make(map[string]topicStats, len(t.topics))
	for topic, counted := range t.topics {
		result.Topics[topic] = counted
	}
	for topic, members := range t.subscribers {
		one := result.Topics[topic]
		one.Peers = len(members)
		result.Topics[topic] = one
	}
	for topic, members := range t.mesh {
		one := result.Topics[topic]
		one.Mesh = len(members)
		result.Topics[topic] = one
	}
	return result
}

func (t *tracer) AddPeer(peer.ID, protocol.ID)         {}
func (t *tracer) RecvRPC(*pubsub.RPC)                  {} // inspect has seen it
func (t *tracer) Join(string)                          {}
func (t *tracer) Leave(string)                         {}
func (t *tracer) ValidateMessage(*pubsub.Message)      {}
func (t *tracer) ThrottlePeer(peer.ID)                 {}
func (t *tracer) UndeliverableMessage(*pubsub.Message) {} // its taker is DeliverMessage

// add puts a member into a named set; whether it is new there.
func add(sets map[string]map[peer.ID]struct{}, name string, member peer.ID) bool {
	if sets[name] == nil {
		sets[name] = make(map[peer.ID]struct{})
	}
	_, known := sets[name][member]
	sets[name][member] = struct{}{}
	return !known
}
