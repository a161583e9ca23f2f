package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
)

func TestQuotasHoldAfterwards(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var all []connection
		kept := 0
		for number := range random.IntN(40) {
			one := connection{
				peer: peer.ID(fmt.Sprint(number)), kept: random.IntN(2) == 0, useful: random.IntN(2) == 0,
				meshed: random.IntN(2) == 0,
			}
			if random.IntN(2) == 0 {
				one.age = grace
			}
			if one.kept {
				kept++
			}
			all = append(all, one)
		}
		most, mostUnknown := random.IntN(20), random.IntN(10)
		leaving := make(map[peer.ID]bool)
		for _, who := range surplus("own", all, most, mostUnknown) {
			leaving[who] = true
		}
		free, unknown := 0, 0
		for _, one := range all {
			switch {
			case one.kept && leaving[one.peer]:
				t.Fatal("a kept peer was let go of")
			case !one.kept && !leaving[one.peer]:
				free++
				if one.unknown() {
					unknown++
				}
			}
		}
		if free > max(0, most-kept) || unknown > mostUnknown {
			t.Fatalf("%d free of %d, %d unknown of %d", free, max(0, most-kept), unknown, mostUnknown)
		}
	}
}

func TestNewcomersHaveTimeToSpeak(t *testing.T) {
	fresh, old := []connection{}, []connection{}
	for number := range 10 {
		fresh = append(fresh, connection{peer: peer.ID(fmt.Sprint(number))})
		old = append(old, connection{peer: peer.ID(fmt.Sprint(number)), age: grace})
	}
	if got := surplus("own", fresh, 41, 7); len(got) != 0 {
		t.Errorf("%d newcomers were let go of", len(got))
	}
	if got := surplus("own", old, 41, 7); len(got) != 3 {
		t.Errorf("%d unknown peers were let go of, want 3", len(got))
	}
}
