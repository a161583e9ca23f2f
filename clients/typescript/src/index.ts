// @millrace/client: see README.md.

export { encodeAddress, decodeAddress, METACHAIN, shardOf, type ShardRule } from "./address.js";
export {
  Aggregator, type AggregatorConfig, type AggregatorHealth, type Amount, type BatchQuote, type Ladder, type LadderParameters,
  type MultiSwap, type MultiSwapParameters, type PairConfig, type Pools, type Prices, type Quote, type QuoteParameters,
  type StreamItem, type SwapInput, type Tokens,
} from "./aggregator.js";
export {
  type Bounds, checkMultiSwap, checkPrepared, checkQuote, CONTRACTS, type Draft, Mismatch, type Terms, type Trust, type Unsigned,
} from "./checks.js";
export { ClientError, OutcomeUnknown, Refused, SlowReader, Unreachable, WalletError } from "./errors.js";
export { type FinalOptions, Handle, type Outcome, type TransactionState } from "./handle.js";
export type { CallOptions, HttpOptions } from "./http.js";
export type { AccountMessage, AllGasStatsMessage, GasStatsMessage, MessageOf, NetworkStatsMessage, StatusMessage } from "./live.js";
export * from "./millrace.js";
export type { Missed, Policy, QueueOptions } from "./queue.js";
export * from "./relayer.js";
export {
  bytesSigner, ExtensionSigner, signedBy, type Signer, userSigner, type UserSignerLike,
} from "./signer.js";
export type { SocketClass, SocketLike, SocketOptions } from "./socket.js";
export {
  GUARDED, HASH_SIGNED, type Hashes, hashesOf, type Integer, signingBytes, signingMessage, toProtobuf, type Transaction,
  TransactionError,
} from "./transaction.js";
export type { Patience } from "./wait.js";
