package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// A frame on the socket is a 4-byte big-endian length and one msgpack array [tag, field, ...].
// The other end is src/millrace/gossip/wire.py.
const maxFrame = 8 * 1024 * 1024

var errUnknownCommand = errors.New("an unknown command on the gossip socket")

type startCommand struct{ Settings settings }

type publishCommand struct {
	Request, Peer int
	Topic         string
	Data          []byte
}

type addressCommand struct {
	Request, Peer int
	Address       string
	Keep          bool
}

type statsCommand struct{ Request, Peer int }

type readyPeer struct {
	PeerID    string   `msgpack:"peer_id"`
	Listening []string `msgpack:"listening"`
	Addresses []string `msgpack:"addresses"`
}

type topicStats struct {
	Peers      int    `msgpack:"peers"`
	Mesh       int    `msgpack:"mesh"`
	Delivered  uint64 `msgpack:"delivered"`
	Duplicates uint64 `msgpack:"duplicates"`
	Published  uint64 `msgpack:"published"`
}

type peerStats struct {
	PeerID            string                `msgpack:"peer_id"`
	ConnectedPeers    int                   `msgpack:"connected_peers"`
	Connections       uint64                `msgpack:"connections"`
	Topics            map[string]topicStats `msgpack:"topics"`
	Delivered         uint64                `msgpack:"delivered"`
	Duplicates        uint64                `msgpack:"duplicates"`
	Published         uint64                `msgpack:"published"`
	Invalid           uint64                `msgpack:"invalid"`
	DroppedInbound    uint64                `msgpack:"dropped_inbound"`
	DroppedOutbound   uint64                `msgpack:"dropped_outbound"`
	DroppedControl    uint64                `msgpack:"dropped_control"`
	DroppedValidation uint64                `msgpack:"dropped_validation"`
	Stalled           uint64                `msgpack:"stalled"`
	Requests          uint64                `msgpack:"requests"`
	Trimmed           uint64                `msgpack:"trimmed"`
}

// readFrame returns the body of the next frame; io.EOF at a clean end.
func readFrame(from io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes on the gossip socket", length)
	}
	body := make([]byte, length)
	_, err := io.ReadFull(from, body)
	if errors.Is(err, io.EOF) && length > 0 {
		err = io.ErrUnexpectedEOF
	}
	return body, err
}

// frame encodes a report: its tag and fields, with the length in front.
func frame(tag string, fields ...any) ([]byte, error) {
	var buffer bytes.Buffer
	buffer.Write(make([]byte, 4))
	encoder := msgpack.NewEncoder(&buffer)
	if err := encoder.EncodeArrayLen(len(fields) + 1); err != nil {
		return nil, err
	}
	for _, field := range append([]any{tag}, fields...) {
		if err := encoder.Encode(field); err != nil {
			return nil, err
		}
	}
	body := buffer.Bytes()
	binary.BigEndian.PutUint32(body, uint32(len(body)-4))
	return body, nil
}

// decodeCommand reads the body of a frame from the handle.
func decodeCommand(body []byte) (any, error) {
	decoder := msgpack.NewDecoder(bytes.NewReader(body))
	length, err := decoder.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	tag, err := decoder.DecodeString()
	if err != nil {
		return nil, err
	}
	switch {
	case tag == "start" && length == 2:
		var command startCommand
		err = decoder.Decode(&command.Settings)
		return command, err
	case tag == "publish" && length == 5:
		var command publishCommand
		err = decoder.DecodeMulti(&command.Request, &command.Peer, &command.Topic, &command.Data)
		return command, err
	case (tag == "dial" || tag == "keep") && length == 4:
		command := addressCommand{Keep: tag == "keep"}
		err = decoder.DecodeMulti(&command.Request, &command.Peer, &command.Address)
		return command, err
	case tag == "get_stats" && length == 3:
		var command statsCommand
		err = decoder.DecodeMulti(&command.Request, &command.Peer)
		return command, err
	}
	return nil, fmt.Errorf("%w: %s with %d fields", errUnknownCommand, tag, length-1)
}
