package main

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"regexp"
	"strings"
)

// The order of secp256k1's group (SEC 2): a secret is 1 .. order - 1.
var order, _ = new(big.Int).SetString("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141", 16)

var pem = regexp.MustCompile(
	`-----BEGIN PRIVATE KEY for \S+-----\s+([A-Za-z0-9+/=\s]+?)-----END PRIVATE KEY for \S+-----`)

// secretKey returns the 32-byte secret of a peer: the file wins over the seed; with neither it is random.
func secretKey(file, seed string) ([]byte, error) {
	switch {
	case file != "":
		return secretOfFile(file)
	case seed != "":
		return secretOfSeed(seed), nil
	}
	return newSecret()
}

func newSecret() ([]byte, error) {
	number, err := rand.Int(rand.Reader, new(big.Int).Sub(order, big.NewInt(1)))
	if err != nil {
		return nil, err
	}
	return number.Add(number, big.NewInt(1)).FillBytes(make([]byte, 32)), nil
}

func secretOfSeed(seed string) []byte {
	digest := sha512.Sum512([]byte("millrace gossip identity\x00" + seed))
	number := new(big.Int).SetBytes(digest[:])
	number.Mod(number, new(big.Int).Sub(order, big.NewInt(1)))
	return number.Add(number, big.NewInt(1)).FillBytes(make([]byte, 32))
}

// secretOfFile reads the key in a file, or makes one there (mode 0600) if there is no such file.
func secretOfFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeNewSecret(path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the gossip key file %s: %w", path, err)
	}
	return parseKey(string(text), path)
}

// writeNewSecret keeps a new secret in a file that is there whole or not at all.
func writeNewSecret(path string) ([]byte, error) {
	secret, err := newSecret()
	if err != nil {
		return nil, err
	}
	scratch := path + ".new"
	err = writeSynced(scratch, hex.EncodeToString(secret)+"\n")
	if err == nil {
		err = os.Rename(scratch, path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the gossip key file %s: %w", path, err)
	}
	return secret, nil
}

func writeSynced(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// parseKey takes 64 hex digits, or a node's PEM block (base64 of them).
func parseKey(text, name string) ([]byte, error) {
	digits := strings.TrimSpace(text)
	if block := pem.FindStringSubmatch(text); block != nil {
		inner, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(block[1]), ""))
		if err != nil {
			return nil, fmt.Errorf("%s holds neither 64 hex digits nor a node's p2p key in PEM", name)
		}
		digits = string(inner)
	}
	secret, err := hex.DecodeString(digits)
	if err != nil {
		return nil, fmt.Errorf("%s holds neither 64 hex digits nor a node's p2p key in PEM", name)
	}
	number := new(big.Int).SetBytes(secret)
	if len(secret) != 32 || number.Sign() == 0 || number.Cmp(order) >= 0 {
		return nil, fmt.Errorf("%s holds no secp256k1 secret of 32 bytes", name)
	}
	return secret, nil
}
