package main

import (
	"io"
	"sync"
	"time"
)

const writePiece = 256 * 1024

// outlet holds reports on their way to the handle. Answers are few (the handle bounds its requests) and never
// dropped. Messages are bounded in number and bytes: beyond it the oldest is dropped, counted and logged.
type outlet struct {
	mutex       sync.Mutex
	filled      *sync.Cond
	answers     [][]byte
	messages    [][]byte
	bytes       int
	maxMessages int
	maxBytes    int
	dropped     uint64
	loggedAt    time.Time
	closed      bool
}

func newOutlet(maxMessages, maxBytes int) *outlet {
	o := &outlet{maxMessages: maxMessages, maxBytes: maxBytes}
	o.filled = sync.NewCond(&o.mutex)
	return o
}

func (o *outlet) answer(tag string, fields ...any) {
	body, err := frame(tag, fields...)
	if err != nil {
		logLine("error", "millrace.gossip", "an answer cannot be encoded", map[string]any{"reason": err.Error()})
		return
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.answers = append(o.answers, body)
	o.filled.Signal()
}

func (o *outlet) message(peer int, topic string, data []byte, source string, receivedNs int64) {
	body, err := frame("message", peer, topic, data, source, receivedNs)
	if err != nil {
		return // texts, bytes and numbers always have an encoding
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.messages = append(o.messages, body)
	o.bytes += len(body)
	for len(o.messages) > o.maxMessages || o.bytes > o.maxBytes {
		o.bytes -= len(o.messages[0])
		o.messages[0] = nil
		o.messages = o.messages[1:]
		o.dropped++
		o.complain()
	}
	o.filled.Signal()
}

func (o *outlet) complain() {
	if now := time.Now(); now.Sub(o.loggedAt) >= time.Second {
		o.loggedAt = now
		logLine("error", "millrace.gossip.process", "the service does not take its gossip messages: dropping",
			map[string]any{"dropped": o.dropped})
	}
}

func (o *outlet) droppedSoFar() uint64 {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.dropped
}

// drain writes all reports until the handle is gone or the outlet is closed.
func (o *outlet) drain(to io.Writer) {
	for {
		piece := o.next()
		if piece == nil {
			return
		}
		if _, err := to.Write(piece); err != nil {
			return
		}
	}
}

// next waits for something to write; nil once closed.
func (o *outlet) next() []byte {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for len(o.answers) == 0 && len(o.messages) == 0 && !o.closed {
		o.filled.Wait()
	}
	if o.closed {
		return nil
	}
	var piece []byte
	for len(o.answers) > 0 && len(piece) < writePiece {
		piece = append(piece, o.answers[0]...)
		o.answers = o.answers[1:]
	}
	for len(o.messages) > 0 && len(piece) < writePiece {
		piece = append(piece, o.messages[0]...)
		o.bytes -= len(o.messages[0])
		o.messages[0] = nil
		o.messages = o.messages[1:]
	}
	return piece
}

func (o *outlet) close() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.closed = true
	o.filled.Broadcast()
}
