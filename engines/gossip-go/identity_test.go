package main

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The secret that src/millrace/gossip/identity.py derives from the same text.
const secretOfLeft = "c203286c7b82e986c8433f798ceaee040107da7730f904a0616081de702f7f45"

func TestSeedGivesTheSameSecretAsPython(t *testing.T) {
	if got := hex.EncodeToString(secretOfSeed("left")); got != secretOfLeft {
		t.Errorf("got %s, want %s", got, secretOfLeft)
	}
}

func TestFileIsMadeOnceAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer.key")
	first, err := secretKey(path, "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := secretKey(path, "ignored")
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("%x, then %x (%v)", first, second, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
}

// Where a disk has no room for a new key the error names the file, and with room the next start has a key.
func TestFileIsThereWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer.key")
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	_, refused := secretKey(path, "")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if refused == nil || !strings.Contains(refused.Error(), path) {
		t.Errorf("the error is %v", refused)
	}
	if _, err := secretKey(path, ""); err != nil {
		t.Error(err)
	}
}

func TestKeysInTextAndPem(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	pemText := "-----BEGIN PRIVATE KEY for 16Uiu2-----\n" +
		"MGEwYTBhMGEwYTBhMGEwYTBhMGEwYTBhMGEwYTBhMGEwYTBhMGEwYTBhMGEwYTBh\nMGEwYTBhMGEwYTBhMGEwYQ==\n" +
		"-----END PRIVATE KEY for 16Uiu2-----\n"
	for _, text := range []string{digits + "\n", pemText} {
		if secret, err := parseKey(text, "file"); err != nil || hex.EncodeToString(secret) != digits {
			t.Errorf("%q: %x (%v)", text, secret, err)
		}
	}
}

func TestWhatIsNoKey(t *testing.T) {
	for _, text := range []string{"", "xyz", "0a", strings.Repeat("00", 32), strings.Repeat("ff", 32)} {
		if _, err := parseKey(text, "bad.key"); err == nil || !strings.HasPrefix(err.Error(), "bad.key holds n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
