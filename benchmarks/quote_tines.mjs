// Times @sushiswap/tines on questions about one market, for benchmarks/quote.py.
// usage: node quote_tines.mjs MODULES INPUT.json
// Each line `START END` on stdin is answered by a JSON array: per question of that range ms and legs.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'

const [modules, input] = process.argv.slice(2)
const require = createRequire(resolve(modules, 'x.js'))
const tines = require('@sushiswap/tines')
const market = JSON.parse(readFileSync(input, 'utf8'))
const address = (n) => '0x' + n.toString(16).padStart(40, '0')
const tokens = market.decimals.map((decimals, i) => ({
  name: `T${i}`, symbol: `T${i}`, address: address(i + 1), decimals, chainId: 1,
}))
const pools = market.pools.map(([a, b, reserveA, reserveB, fee], i) => new tines.ConstantProductRPool(
  address(0x100000 + i), tokens[a], tokens[b], fee, BigInt(reserveA), BigInt(reserveB)))
const number = new Map(pools.map((pool, i) => [pool.address, i]))
const token = new Map(tokens.map((t, i) => [t.address, i]))

const ask = ([from, to, amount]) =>
  tines.findMultiRouteExactIn(tokens[from], tokens[to], BigInt(amount), pools, tokens[0], 0)
const measure = (question) => {
  const times = []
  let route
  for (let k = 0; k < market.repeat; k++) {
    const start = process.hrtime.bigint(), before = process.cpuUsage()
    route = ask(question)
    const { user, system } = process.cpuUsage(before)
    // Waiting for a busy core is not the peer's fault, nor is what its helper threads do meanwhile.
    times.push(Math.min(Number(process.hrtime.bigint() - start) / 1e6, (user + system) / 1e3))
  }
  const legs = route.legs.map((leg) =>
    [number.get(leg.poolAddress), token.get(leg.tokenFrom.address), token.get(leg.tokenTo.address), leg.swapPortion])
  return { ms: Math.min(...times), legs }
}
for (const question of market.questions.slice(0, 6)) ask(question) // warm-up
for await (const line of createInterface({ input: process.stdin })) {
  const [start, end] = line.split(' ').map(Number)
  console.log(JSON.stringify(market.questions.slice(start, end).map(measure)))
}
