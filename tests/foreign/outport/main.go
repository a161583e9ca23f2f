// Turns payloads that a node sends as protobuf into what the same node sends with MarshallerType = "json".
//
// Standard input: a JSON list of {"topic", "payload" (hex)}. Standard output: a JSON list of texts, each the bytes of
// the frame: the envelope of counter 7, with the payload, whose header bytes are JSON too.
package main

import (
	"encoding/hex"
	"encoding/json"
	"os"

	"github.com/multiversx/mx-chain-communication-go/websocket/data"
	"github.com/multiversx/mx-chain-core-go/data/block"
	"github.com/multiversx/mx-chain-core-go/data/outport"
	"github.com/multiversx/mx-chain-core-go/marshal"
)

type message struct {
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
}

var (
	fromNode = &marshal.GogoProtoMarshalizer{}
	toJSON   = &marshal.JsonMarshalizer{}
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func empty(topic string) interface{} {
	switch topic {
	case outport.TopicSaveBlock:
		return &outport.OutportBlock{}
	case outport.TopicRevertIndexedBlock:
		return &outport.BlockData{}
	case outport.TopicFinalizedBlock:
		return &outport.FinalizedBlock{}
	case outport.TopicSaveRoundsInfo:
		return &outport.RoundsInfo{}
	case outport.TopicSaveValidatorsPubKeys:
		return &outport.ValidatorsPubKeys{}
	case outport.TopicSaveValidatorsRating:
		return &outport.ValidatorsRating{}
	case outport.TopicSaveAccounts:
		return &outport.Accounts{}
	case outport.TopicSettings:
		return &outport.OutportConfig{}
	}
	panic("unknown topic " + topic)
}

func emptyHeader(headerType string) interface{} {
	switch headerType {
	case "Header":
		return &block.Header{}
	case "HeaderV2":
		return &block.HeaderV2{}
	case "MetaBlock":
		return &block.MetaBlock{}
	case "HeaderV3":
		return &block.HeaderV3{}
	case "MetaBlockV3":
		return &block.MetaBlockV3{}
	}
	panic("unknown header type " + headerType)
}

// The node marshals the header with the driver's marshaller, see GetHeaderBytesAndType.
func translateHeader(blockData *outport.BlockData) {
	header := emptyHeader(blockData.HeaderType)
	must(fromNode.Unmarshal(header, blockData.HeaderBytes))
	translated, err := toJSON.Marshal(header)
	must(err)
	blockData.HeaderBytes = translated
}

func main() {
	var messages []message
	must(json.NewDecoder(os.Stdin).Decode(&messages))
	frames := make([]string, 0, len(messages))
	for _, m := range messages {
		raw, err := hex.DecodeString(m.Payload)
		must(err)
		content := empty(m.Topic)
		must(fromNode.Unmarshal(content, raw))
		switch typed := content.(type) {
		case *outport.OutportBlock:
			if typed.BlockData != nil {
				translateHeader(typed.BlockData)
			}
		case *outport.BlockData:
			translateHeader(typed)
		}
		payload, err := toJSON.Marshal(content)
		must(err)
		frame, err := toJSON.Marshal(&data.WsMessage{
			WithAcknowledge: true, Counter: 7, Type: data.PayloadMessage, Payload: payload, Topic: m.Topic, Version: 1,
		})
		must(err)
		frames = append(frames, string(frame))
	}
	must(json.NewEncoder(os.Stdout).Encode(frames))
}
