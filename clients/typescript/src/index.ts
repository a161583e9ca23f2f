// @millrace/client: see README.md.

export { encodeAddress, decodeAddress, METACHAIN, shardOf, type ShardRule } from "./address.js";
export * from "./aggregator.js";
export {
  type Bounds, checkMultiSwap, checkPrepared, checkQuote, CONTRACTS, Mismatch, type Trust, type Unsigned,
} from "./checks.js";
export { ConnectionLost, MillraceError, OutcomeUnknown, QueueFull, Refused } from "./errors.js";
export { type Final, type FinalOptions, TransactionHandle, type TransactionState } from "./handle.js";
export type { CallOptions, HttpOptions } from "./http.js";
export type { AccountMessage, AllGasStatsMessage, GasStatsMessage, MessageOf, NetworkStatsMessage, StatusMessage } from "./live.js";
export * from "./millrace.js";
export type { Missed, Overflow, QueueOptions } from "./queue.js";
export * from "./relayer.js";
export {
  bytesSigner, ExtensionSigner, signedBy, type Signer, SigningFailed, userSigner, type UserSignerLike,
} from "./signer.js";
export type { SocketClass, SocketLike, SocketOptions } from "./socket.js";
export {
  GUARDED, HASH_SIGNED, type Hashes, hashesOf, type Integer, signingBytes, signingMessage, toProtobuf, type Transaction,
  TransactionError,
} from "./transaction.js";
export type { Patience } from "./wait.js";
