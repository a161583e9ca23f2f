package main

import (
	"bytes"
	"crypto/sha256"
	"sort"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Which connections to close when there are too many: the rules of src/millrace/gossip/trim.py.
const grace = 15 * time.Second

type connection struct {
	peer                 peer.ID
	kept, useful, meshed bool
	age                  time.Duration
}

func (c connection) unknown() bool { return !c.useful && c.age >= grace }

// surplus returns the peers to let go of: unknown ones beyond their quota, then whoever is beyond the bound of all.
// First go those of no use, then those outside our meshes; of equals the furthest by Kademlia.
func surplus(own peer.ID, all []connection, most, mostUnknown int) []peer.ID {
	var free []connection
	for _, one := range all {
		if !one.kept {
			free = append(free, one)
		}
	}
	sort.Slice(free, func(i, j int) bool { return before(own, free[i], free[j]) })
	room := max(0, most-(len(all)-len(free)))
	var leaving []peer.ID
	unknown := 0
	for place, one := range free {
		if one.unknown() {
			unknown++
		}
		if place >= room || (one.unknown() && unknown > mostUnknown) {
			leaving = append(leaving, one.peer)
		}
	}
	return leaving
}

// before tells whether the left peer is the one rather kept.
func before(own peer.ID, left, right connection) bool {
	for _, pair := range [][2]bool{
		{!left.unknown(), !right.unknown()}, {left.useful, right.useful}, {left.meshed, right.meshed},
	} {
		if pair[0] != pair[1] {
			return pair[0]
		}
	}
	l, r := distance(own, left.peer), distance(own, right.peer)
	return bytes.Compare(l[:], r[:]) < 0
}

// distance is Kademlia's: XOR of the SHA-256 of both ids.
func distance(left, right peer.ID) [32]byte {
	l, r := sha256.Sum256([]byte(left)), sha256.Sum256([]byte(right))
	for i := range l {
		l[i] ^= r[i]
	}
	return l
}
