// A js-libp2p peer driven by lines of JSON: commands on stdin, events on stdout.
import { createInterface } from 'node:readline'
import { createLibp2p } from 'libp2p'
import { tcp } from '@libp2p/tcp'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { ping } from '@libp2p/ping'
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht'
import { generateKeyPair } from '@libp2p/crypto/keys'
import { multiaddr } from '@multiformats/multiaddr'

const [topic, kadProtocol] = process.argv.slice(2)
const say = event => process.stdout.write(JSON.stringify(event) + '\n')
const hex = bytes => bytes == null ? '' : Buffer.from(bytes).toString('hex')

const node = await createLibp2p({
  privateKey: await generateKeyPair('secp256k1'),
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    ping: ping(),
    // the limits of a MultiversX node; signatures are strict by default
    pubsub: gossipsub({ heartbeatInterval: 1000, maxInboundDataLength: 2 * 1024 * 1024, maxOutboundBufferSize: 8 * 1024 * 1024 }),
    dht: kadDHT({ protocol: kadProtocol, clientMode: false, peerInfoMapper: passthroughMapper, allowQueryWithZeroPeers: true })
  }
})
const pubsub = node.services.pubsub
pubsub.subscribe(topic)
pubsub.addEventListener('gossipsub:message', ({ detail: { msg, propagationSource } }) => say({
  event: 'message',
  type: msg.type,
  topic: msg.topic,
  data: hex(msg.data),
  from: msg.from?.toString(),
  sequenceNumber: msg.sequenceNumber?.toString(),
  signature: hex(msg.signature),
  forwarder: propagationSource.toString()
}))
say({ event: 'ready', id: node.peerId.toString(), address: node.getMultiaddrs()[0].toString() })

// The protobuf wire format: field number -> list of values, a BigInt for a number and bytes for the rest.
const fields = bytes => {
  const found = {}
  let at = 0
  const number = () => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]
      value |= BigInt(byte & 127) << shift
      if (byte < 128) return value
    }
  }
  while (at < bytes.length) {
    const key = Number(number())
    if ((key & 7) !== 0 && (key & 7) !== 2) throw new Error(`wire type ${key & 7} is not used here`)
    let value = number()
    if ((key & 7) === 2) value = bytes.subarray(at, at += Number(value))
    ;(found[key >> 3] ??= []).push(value)
  }
  return found
}
// A gossip message's transactions: TopicMessage { 1 version, 2 payload }, Batch { 1 data }, Transaction.
const transactions = data => {
  const wrapper = fields(data)
  if (Number(wrapper[1]?.[0]) !== 1) throw new Error('not version 1 of the wrapper')
  return fields(wrapper[2][0])[1].map(item => {
    const tx = fields(item)
    return {
      nonce: Number(tx[1]?.[0] ?? 0n),
      receiver: hex(tx[3]?.[0]),
      sender: hex(tx[5]?.[0]),
      gasPrice: Number(tx[7]?.[0]),
      gasLimit: Number(tx[8]?.[0]),
      data: hex(tx[9]?.[0]),
      chainID: Buffer.from(tx[10]?.[0] ?? []).toString(),
      version: Number(tx[11]?.[0]),
      signature: hex(tx[12]?.[0]),
      relayer: hex(tx[16]?.[0]),
      relayerSignature: hex(tx[17]?.[0])
    }
  })
}

const commands = {
  decode: async ({ data }) => ({ transactions: transactions(Buffer.from(data, 'hex')) }),
  subscribe: async ({ topic }) => { pubsub.subscribe(topic) },
  dial: async ({ address }) => { await node.dial(multiaddr(address)) },
  // where the connected peers that listen are reached
  addresses: async () => ({
    of: (await node.peerStore.all()).filter(peer => node.getConnections(peer.id).length > 0)
      .map(peer => ({ id: peer.id.toString(), addresses: peer.addresses.map(({ multiaddr }) => multiaddr.toString()) }))
  }),
  mesh: async () => ({
    mesh: pubsub.getMeshPeers(topic).length,
    protocols: [...pubsub.streamsOutbound.values()].map(stream => stream.protocol)
  }),
  publish: async ({ data, on = topic }) => ({ recipients: (await pubsub.publish(on, Buffer.from(data, 'hex'))).recipients.length }),
  // `count` messages of 300 bytes, `rate` a second; each begins with who it is from and its number. Those that found no
  // peer are counted, and so are connections that ended meanwhile.
  flood: async ({ number, count, rate }) => {
    const began = Date.now()
    let alone = 0, ended = 0
    const onEnd = () => ended++
    node.addEventListener('connection:close', onEnd)
    for (let sent = 0; sent < count; sent++) {
      const data = Buffer.alloc(300)
      data[0] = number
      data.writeUInt32BE(sent, 1)
      await pubsub.publish(topic, data).catch(() => alone++)
      const wait = began + 1000 * (sent + 1) / rate - Date.now()
      if (wait > 0) await new Promise(resolve => setTimeout(resolve, wait))
    }
    node.removeEventListener('connection:close', onEnd)
    return { alone, ended }
  },
  closest: async ({ key }) => {
    const peers = []
    for await (const peer of node.peerRouting.getClosestPeers(Buffer.from(key, 'hex'), { signal: AbortSignal.timeout(10_000) })) {
      peers.push({ id: peer.id.toString(), addresses: peer.multiaddrs.map(String) })
    }
    return { peers }
  }
}
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  try {
    say({ event: 'done', request: command.request, ...await commands[command.do](command) })
  } catch (error) {
    say({ event: 'done', request: command.request, error: String(error) })
  }
}
await node.stop()
process.exit(0)
