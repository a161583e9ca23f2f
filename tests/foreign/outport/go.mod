module outportjson

go 1.26

require (
	github.com/multiversx/mx-chain-communication-go v1.3.2
	github.com/multiversx/mx-chain-core-go v1.5.1
)

require (
	github.com/denisbrodbeck/machineid v1.0.1 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.3 // indirect
	github.com/mr-tron/base58 v1.3.0 // indirect
	github.com/pelletier/go-toml v1.9.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	google.golang.org/protobuf v1.36.4 // indirect
)
