// The gossip peers of a millrace service on the network's own libraries. It takes the place of
// `python -m millrace.gossip`: the same arguments, the same protocol on the same socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	mxlog "github.com/multiversx/mx-chain-logger-go"
)

const (
	flushTime = 300 * time.Millisecond
	closeTime = time.Second
)

var errProtocol = errors.New("the gossip socket is not used as agreed")

func main() {
	runtime.LockOSThread() // the kernel's promise to end us with our parent holds for the thread that asks for it
	socket := flag.String("socket", "", "Unix socket on which the handle listens")
	parent := flag.Int("parent", 0, "process id of the handle's process")
	level := flag.String("log-level", "info", "debug shows more")
	flag.Parse()
	verbose = *level == "debug"
	signal.Ignore(syscall.SIGINT) // Ctrl-C reaches the whole group; the parent decides
	pubsub.TimeCacheDuration = seenTime
	err := errors.Join(dieWithParent(*parent), mxlog.SetLogLevel("*:NONE"))
	if err == nil {
		err = serve(*socket)
	}
	if err != nil {
		logLine("critical", "millrace.gossip", err.Error(), nil) // the handle shows this line
		os.Exit(1)
	}
}

// dieWithParent asks the kernel to end this process with its parent.
func dieWithParent(parent int) error {
	_, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
	if failed != 0 {
		return fmt.Errorf("prctl(PR_SET_PDEATHSIG) refused: %w", failed)
	}
	if parent != 0 && os.Getppid() != parent {
		return errors.New("the parent process ended before this one could start")
	}
	return nil
}

// serve runs the peers the handle asks for and returns when it closes the socket.
func serve(path string) error {
	connection, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, err := nextCommand(connection)
	if errors.Is(err, io.EOF) {
		return nil // the handle gave up while we were starting
	}
	start, ok := first.(startCommand)
	if err != nil || !ok {
		return errors.Join(errProtocol, err)
	}
	out := newOutlet(start.Settings.MaxInbound, start.Settings.MaxInboundBytes)
	nodes, err := startNodes(ctx, start.Settings, out)
	if err != nil {
		return err
	}
	go out.drain(connection)
	err = obeyAll(ctx, connection, nodes, out)
	time.AfterFunc(closeTime, func() { os.Exit(0) })
	flush(nodes)
	for _, one := range nodes {
		_ = one.host.Close()
	}
	return err
}

func startNodes(ctx context.Context, shared settings, out *outlet) ([]*node, error) {
	var nodes []*node
	described := []readyPeer{}
	for index, own := range shared.Peers {
		one, err := newNode(ctx, index, own, shared, out)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, one)
		described = append(described, one.describe())
	}
	if shared.Interconnect {
		for index, one := range nodes {
			for _, other := range described[index+1:] {
				_ = one.keep(ctx, other.Listening[0]+"/p2p/"+other.PeerID)
			}
		}
	}
	out.answer("ready", described)
	return nodes, nil
}

func nextCommand(from io.Reader) (any, error) {
	body, err := readFrame(from)
	if err != nil {
		return nil, err
	}
	return decodeCommand(body)
}

// obeyAll carries out commands until the handle closes the socket.
func obeyAll(ctx context.Context, from io.Reader, nodes []*node, out *outlet) error {
	for {
		command, err := nextCommand(from)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := obey(ctx, command, nodes, out); err != nil {
			return err
		}
	}
}

func obey(ctx context.Context, command any, nodes []*node, out *outlet) error {
	switch c := command.(type) {
	case publishCommand:
		select {
		case nodes[c.Peer].outbox <- outgoing{c.Request, c.Topic, c.Data}:
		default: // the handle keeps fewer unanswered
			return fmt.Errorf("%w: more publishes than max_pending", errProtocol)
		}
	case addressCommand:
		if c.Keep {
			out.answer("dialled", c.Request, nodes[c.Peer].keep(ctx, c.Address))
		} else {
			go func() { out.answer("dialled", c.Request, nodes[c.Peer].dial(ctx, c.Address)) }()
		}
	case statsCommand:
		out.answer("stats", c.Request, nodes[c.Peer].stats())
	default:
		return errProtocol
	}
	return nil
}

// flush waits until the remote peers have taken what is queued for them, for a moment.
func flush(nodes []*node) {
	unsent := func() (frames int) {
		for _, one := range nodes {
			frames += one.flows.unsent()
		}
		return frames
	}
	wait(flushTime, func() bool { return unsent() == 0 })
	if frames := unsent(); frames > 0 {
		logLine("warning", "millrace.gossip", "frames not taken by remote peers are lost at the end",
			fields{"frames": frames})
	}
}
