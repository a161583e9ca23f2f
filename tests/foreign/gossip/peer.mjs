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

const commands = {
  dial: async ({ address }) => { await node.dial(multiaddr(address)) },
  mesh: async () => ({
    mesh: pubsub.getMeshPeers(topic).length,
    protocols: [...pubsub.streamsOutbound.values()].map(stream => stream.protocol)
  }),
  publish: async ({ data }) => ({ recipients: (await pubsub.publish(topic, Buffer.from(data, 'hex'))).recipients.length }),
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
