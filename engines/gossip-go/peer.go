package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
)

const (
	redialFirst  = 250 * time.Millisecond
	redialMost   = 30 * time.Second
	steady       = 30 * time.Second
	dialTimeout  = 10 * time.Second
	trimInterval = 5 * time.Second
	lookAgain    = 5 * time.Millisecond
	// A heartbeat of the router, after which a mesh has the members it can have, and a little.
	settleTime   = 1200 * time.Millisecond
	seenTime     = 10 * time.Minute
	bytesPerTurn = 10_000
	// Of a frame with one message beside its data.
	envelopeBytes = 256
	questions     = 64
	// Bytes from which on a mesh peer is told not to send what we have; gossipsub begins at 1 KiB. A message of 300 bytes
	// came 4.3 times from six peers, so it comes 1.8 times. Peers short of CPU drop from their queues of 32 frames: now a
	// copy, before also what was new to us (of 25 000 messages 16 to 22 were missed at a load of 12, now 0 to 2).
	unwantedAbove = 1
	// For so long nothing is taken from who sent a forged message.
	forgerTime = 10 * time.Minute
)

type outgoing struct {
	request int
	topic   string
	data    []byte
}

// node is one running libp2p peer; index is its place in the settings.
type node struct {
	index    int
	own      peerSettings
	shared   settings
	outlet   *outlet
	host     host.Host
	pubsub   *pubsub.PubSub
	tracer   *tracer
	flows    *flows
	direct   *requests
	pinger   *ping.PingService
	forgers  pubsub.Blacklist
	outbox   chan outgoing
	topics   map[string]*pubsub.Topic // of the publishing goroutine, after the start
	settled  map[string]int
	stalled  map[string]bool
	mutex    sync.Mutex
	kept     map[string]peer.ID
	since    map[peer.ID]time.Time
	made     uint64
	stalls   uint64
	trimmed  uint64
	departed chan struct{} // closed and made anew at each lost connection
}

func newNode(ctx context.Context, index int, own peerSettings, shared settings, out *outlet) (*node, error) {
	for _, address := range own.Bootstrap {
		if _, err := target(address); err != nil {
			return nil, err
		}
	}
	secret, err := secretKey(own.KeyFile, own.KeySeed)
	if err != nil {
		return nil, err
	}
	made, err := newHost(secret, own)
	if err != nil {
		return nil, err
	}
	n := &node{
		index: index, own: own, shared: shared, outlet: out, host: made,
		flows:  newFlows(shared.MaxPeerQueue, shared.MaxPeerQueueBytes),
		outbox: make(chan outgoing, shared.MaxPending), topics: make(map[string]*pubsub.Topic),
		settled: make(map[string]int), stalled: make(map[string]bool), kept: make(map[string]peer.ID),
		since: make(map[peer.ID]time.Time), departed: make(chan struct{}),
	}
	if err := n.start(ctx, secret); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return n, nil
}

func (n *node) start(ctx context.Context, secret []byte) (err error) {
	n.tracer = newTracer(n.host.ID(), n.own.Subscribe, n.flows, newPending(n.shared.MaxInboundBytes), n.deliver, n.expel)
	n.host.Network().Notify(&network.NotifyBundle{ConnectedF: n.connected, DisconnectedF: n.disconnected})
	if n.direct, err = serveDirect(ctx, n.host, secret); err != nil {
		return err
	}
	if n.forgers, err = pubsub.NewTimeCachedBlacklist(forgerTime); err != nil {
		return err
	}
	params := pubsub.DefaultGossipSubParams()
	params.IDontWantMessageThreshold = unwantedAbove
	n.pubsub, err = pubsub.NewGossipSub(ctx, countingHost{n.host, n.flows}, pubsub.WithGossipSubParams(params),
		pubsub.WithBlacklist(n.forgers),
		pubsub.WithMaxMessageSize(maxFrameBytes), pubsub.WithPeerOutboundQueueSize(n.shared.MaxPeerQueue),
		pubsub.WithSeenMessagesTTL(seenTime), pubsub.WithRawTracer(n.tracer),
		pubsub.WithAppSpecificRpcInspector(n.tracer.inspect),
		pubsub.WithDefaultValidator(n.tracer.accept, pubsub.WithValidatorInline(true)),
		// One worker keeps the order of each sender's messages.
		pubsub.WithValidateWorkers(1), pubsub.WithValidateQueueSize(maxPending))
	if err != nil {
		return err
	}
	for _, topic := range n.own.Subscribe {
		if err := n.subscribe(ctx, topic); err != nil {
			return err
		}
	}
	if n.own.DHT {
		if err := discover(ctx, n.host, n.own); err != nil {
			return err
		}
	}
	for _, address := range n.own.Bootstrap {
		_ = n.keep(ctx, address) // checked above
	}
	n.pinger = ping.NewPingService(n.host)
	go n.publishAtPace(ctx)
	go n.pingAll(ctx)
	go n.trimForever(ctx)
	return nil
}

func (n *node) subscribe(ctx context.Context, name string) error {
	topic, err := n.pubsub.Join(name)
	if err != nil {
		return err
	}
	n.topics[name] = topic
	subscription, err := topic.Subscribe()
	if err != nil {
		return err
	}
	go func() { // messages are taken where the tracer sees them; this empties the subscription's own queue
		for {
			if _, err := subscription.Next(ctx); err != nil {
				return
			}
		}
	}()
	return nil
}

func (n *node) describe() readyPeer {
	described := readyPeer{PeerID: n.host.ID().String(), Listening: []string{}, Addresses: []string{}}
	for _, address := range n.host.Network().ListenAddresses() {
		described.Listening = append(described.Listening, address.String())
	}
	for _, address := range n.host.Addrs() {
		described.Addresses = append(described.Addresses, address.String()+"/p2p/"+described.PeerID)
	}
	return described
}

func (n *node) deliver(topic string, data []byte, source peer.ID) {
	n.outlet.message(n.index, topic, data, source.String(), time.Now().UnixNano())
}

// expel lets go of a remote, from a callback of the router, which must not wait.
func (n *node) expel(who peer.ID, reason string) {
	go func() {
		logPeer("warning", "a peer is let go", fields{"remote": who.String(), "reason": reason})
		if reason == pubsub.RejectInvalidSignature {
			n.pubsub.BlacklistPeer(who)
		}
		_ = n.host.Network().ClosePeer(who)
	}()
}

// ---- publishing

func (n *node) publishAtPace(ctx context.Context) {
	allowance, at := float64(n.shared.PublishBurst), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-n.outbox:
			now := time.Now()
			allowance = min(float64(n.shared.PublishBurst), allowance+now.Sub(at).Seconds()*n.shared.PublishRate)
			at = now
			if allowance < 1 {
				time.Sleep(seconds((1 - allowance) / n.shared.PublishRate))
				allowance, at = 1, time.Now()
			}
			allowance -= max(1, float64(len(next.data))/bytesPerTurn)
			n.outlet.answer("published", next.request, n.publishOnceTaken(ctx, next.topic, next.data))
		}
	}
}

// publishOnceTaken publishes as soon as some peer of the topic has room; 0 when none has in time.
func (n *node) publishOnceTaken(ctx context.Context, topic string, data []byte) int {
	if !n.stalled[topic] {
		wait(seconds(n.shared.PublishPatience), func() bool { return n.hasRoom(topic, len(data)) })
	}
	n.stalled[topic] = !n.hasRoom(topic, len(data))
	if n.stalled[topic] {
		n.mutex.Lock()
		n.stalls++
		n.mutex.Unlock()
		return 0
	}
	n.settle(topic)
	return n.publish(ctx, topic, data)
}

func (n *node) hasRoom(topic string, size int) bool {
	subscribers := n.tracer.subscribersOf(topic)
	for _, who := range subscribers {
		if n.flows.hasRoom(who, size+envelopeBytes) {
			return true
		}
	}
	return len(subscribers) == 0
}

// settle waits, once for each number of subscribers, until the router has taken them into the mesh of our topic, as far as
// it does so by itself: it sends our own messages to the mesh alone, even to an empty one, and takes in nobody while that
// has pubsub.GossipSubDlo members.
func (n *node) settle(topic string) {
	subscribers := len(n.tracer.subscribersOf(topic))
	if subscribers <= n.settled[topic] || !n.tracer.ours[topic] {
		n.settled[topic] = min(n.settled[topic], subscribers)
		return
	}
	wait(settleTime, func() bool { return n.tracer.meshSize(topic) >= min(pubsub.GossipSubDlo, subscribers) })
	n.settled[topic] = subscribers
}

// publish gives a message to the router; the number of peers whose queue took it.
func (n *node) publish(ctx context.Context, name string, data []byte) int {
	topic := n.topics[name]
	if topic == nil {
		joined, err := n.pubsub.Join(name)
		if err != nil {
			return 0
		}
		topic = joined
		n.topics[name] = topic
	}
	if err := topic.Publish(ctx, data); err != nil {
		logPeer("error", "a message was not published", fields{"topic": name, "reason": err.Error()})
		return 0
	}
	return n.takenBy(name)
}

// takenBy tells how many peers' queues took the message just published. The router sends it on in its own loop, which
// takes what waits for it in any order: once it has begun, its answer to a question says that it is through. That it
// answers so many questions before it begins, while there is somebody to send to, does not happen.
func (n *node) takenBy(topic string) int {
	for range questions {
		taken, begun := n.tracer.sent()
		if len(n.pubsub.ListPeers(topic)) == 0 || begun {
			taken, _ = n.tracer.sent()
			return taken
		}
	}
	return 0
}

// wait looks again and again until the condition holds or the time is over.
func wait(most time.Duration, condition func() bool) {
	for end := time.Now().Add(most); !condition() && time.Now().Before(end); {
		time.Sleep(lookAgain)
	}
}

// ---- connections

func (n *node) connected(_ network.Network, c network.Conn) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.made++
	if _, known := n.since[c.RemotePeer()]; !known {
		n.since[c.RemotePeer()] = time.Now()
	}
}

func (n *node) disconnected(net network.Network, c network.Conn) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if net.Connectedness(c.RemotePeer()) != network.Connected {
		delete(n.since, c.RemotePeer())
	}
	close(n.departed)
	n.departed = make(chan struct{})
}

func (n *node) isConnected(who peer.ID) bool {
	return n.host.Network().Connectedness(who) == network.Connected
}

// dial connects once; an empty text, or what went wrong.
func (n *node) dial(ctx context.Context, address string) string {
	to, err := target(address)
	if err != nil {
		return err.Error()
	}
	if to.ID == n.host.ID() {
		return address + " is this peer itself"
	}
	if dialler, ok := n.host.Network().(*swarm.Swarm); ok {
		dialler.Backoff().Clear(to.ID) // pauses are ours
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := n.host.Connect(ctx, *to); err != nil {
		return fmt.Sprintf("cannot connect to %s: %s", address, err)
	}
	return ""
}

// keep stays connected to an address until the context ends; an empty text, or what is wrong with the address.
func (n *node) keep(ctx context.Context, address string) string {
	to, err := target(address)
	if err != nil {
		return err.Error()
	}
	n.mutex.Lock()
	_, known := n.kept[address]
	if !known && to.ID != n.host.ID() {
		n.kept[address] = to.ID
	}
	n.mutex.Unlock()
	if !known && to.ID != n.host.ID() {
		go n.keepConnected(ctx, address, to.ID)
	}
	return ""
}

func (n *node) keepConnected(ctx context.Context, address string, to peer.ID) {
	delay := redialFirst
	for ctx.Err() == nil {
		began, problem := time.Now(), ""
		if !n.isConnected(to) {
			problem = n.dial(ctx, address)
		}
		n.waitUntilLost(ctx, to)
		if time.Since(began) >= steady {
			delay = redialFirst
		}
		if ctx.Err() != nil {
			return
		}
		if problem == "" {
			problem = "connection lost"
		}
		logPeer("warning", "bootstrap peer not connected",
			fields{"address": address, "reason": problem, "retry_in_s": delay.Seconds()})
		sleep(ctx, time.Duration(float64(delay)*(0.8+0.4*rand.Float64())))
		delay = min(2*delay, redialMost)
	}
}

func (n *node) waitUntilLost(ctx context.Context, who peer.ID) {
	for {
		n.mutex.Lock()
		departed := n.departed
		n.mutex.Unlock()
		if !n.isConnected(who) {
			return
		}
		select {
		case <-departed:
		case <-ctx.Done():
			return
		}
	}
}

// pingAll closes connections that do not answer, so that a peer lost without a word is dialled again.
func (n *node) pingAll(ctx context.Context) {
	interval := seconds(n.shared.PingInterval)
	for sleep(ctx, interval) {
		for _, who := range n.host.Network().Peers() {
			go func() {
				limited, cancel := context.WithTimeout(ctx, interval/2)
				defer cancel()
				began := time.Now()
				answer, came := <-n.pinger.Ping(limited, who) // none comes in time: the channel is closed
				// On a busy machine an answer may wait behind thousands of messages: who sends those is alive.
				silent := (!came || answer.Error != nil) && !n.tracer.heardSince(who, began)
				if silent && ctx.Err() == nil && n.isConnected(who) {
					logPeer("warning", "a connection does not answer", fields{"remote": who.String()})
					_ = n.host.Network().ClosePeer(who)
				}
			}()
		}
	}
}

func (n *node) trimForever(ctx context.Context) {
	for sleep(ctx, trimInterval) {
		for _, who := range surplus(n.host.ID(), n.connections(), n.own.MaxConnections, n.own.MaxUnknown) {
			logPeer("info", "a connection too many is closed", fields{"remote": who.String()})
			_ = n.host.Network().ClosePeer(who)
			n.mutex.Lock()
			n.trimmed++
			n.mutex.Unlock()
		}
	}
}

func (n *node) connections() []connection {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	kept := make(map[peer.ID]bool)
	for _, who := range n.kept {
		kept[who] = true
	}
	var all []connection
	for _, who := range n.host.Network().Peers() {
		useful, meshed := n.tracer.isIn(who, n.own.Subscribe)
		all = append(all, connection{
			peer: who, kept: kept[who], useful: useful || len(n.own.Subscribe) == 0, meshed: meshed,
			age: time.Since(n.since[who]),
		})
	}
	return all
}

// stats returns the state and the counters of this peer.
func (n *node) stats() peerStats {
	stats := n.tracer.stats()
	stats.PeerID = n.host.ID().String()
	stats.ConnectedPeers = len(n.host.Network().Peers())
	stats.DroppedInbound = n.outlet.droppedSoFar()
	stats.Requests = n.direct.count.Load()
	for _, topic := range n.own.Subscribe {
		if _, there := stats.Topics[topic]; !there {
			stats.Topics[topic] = topicStats{}
		}
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	stats.Connections, stats.Stalled, stats.Trimmed = n.made, n.stalls, n.trimmed
	return stats
}

// target tells whom an address leads to.
func target(address string) (*peer.AddrInfo, error) {
	to, err := peer.AddrInfoFromString(address)
	if err != nil {
		return nil, fmt.Errorf("%s is no multiaddress ending in /p2p/<peer id>: %w", address, err)
	}
	return to, nil
}

// sleep waits; false when the context ended meanwhile.
func sleep(ctx context.Context, duration time.Duration) bool {
	select {
	case <-time.After(duration):
		return true
	case <-ctx.Done():
		return false
	}
}
