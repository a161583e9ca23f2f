package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	mxlog "github.com/multiversx/mx-chain-logger-go"
)

// Log lines as the Python process writes them: one JSON object on stderr, which the handle passes on.

type fields map[string]any

var (
	logMutex sync.Mutex
	verbose  bool
)

func logLine(level, logger, event string, context fields) {
	if level == "debug" && !verbose {
		return
	}
	line := fields{"ts": time.Now().UnixMilli(), "level": level, "service": "gossip", "logger": logger, "event": event}
	for name, value := range context {
		line[name] = value
	}
	logMutex.Lock()
	defer logMutex.Unlock()
	_ = json.NewEncoder(os.Stderr).Encode(line) // nobody is left to tell when stderr is gone
}

func logPeer(level, event string, context fields) {
	logLine(level, "millrace.gossip.peer", event, context)
}

// quiet is the logger of the network's own parts. What matters of what they do we log ourselves.
type quiet struct{}

func (quiet) Trace(string, ...any)     {}
func (quiet) Debug(string, ...any)     {}
func (quiet) Info(string, ...any)      {}
func (quiet) Warn(string, ...any)      {}
func (quiet) Error(string, ...any)     {}
func (quiet) LogIfError(error, ...any) {}
func (quiet) GetLevel() mxlog.LogLevel { return mxlog.LogNone }
func (quiet) IsInterfaceNil() bool     { return false }
