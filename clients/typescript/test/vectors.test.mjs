import assert from "node:assert/strict";
import { test } from "node:test";
import {
  decodeAddress, encodeAddress, hashesOf, shardOf, signingBytes, signingMessage, toProtobuf, TransactionError,
} from "@millrace/client";
import { Ed25519Signer } from "@millrace/client/ed25519";
import * as noble from "@noble/ed25519";
import { readVectors } from "./support.mjs";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const text = (bytes) => Buffer.from(bytes).toString();
const { keys, vectors, refused } = readVectors("clients.json");
const exact = ({ nonce, gasPrice, gasLimit, ...rest }) => ({
  ...rest, nonce: BigInt(nonce), gasPrice: BigInt(gasPrice), gasLimit: BigInt(gasLimit),
});

for (const vector of vectors) {
  test(`signing bytes, protobuf form and hashes: ${vector.name}`, () => {
    const tx = exact(vector.transaction);
    assert.equal(text(signingBytes(tx)), vector.signingJson);
    assert.equal(hex(signingMessage(tx)), vector.messageHex);
    assert.equal(hex(toProtobuf(tx)), vector.protobufHex);
    const { clientHash, sdkHash, chainHash } = hashesOf(tx);
    assert.deepEqual({ clientHash, sdkHash, chainHash }, {
      clientHash: vector.clientHash, sdkHash: vector.sdkHash, chainHash: vector.chainHash,
    });
  });

  test(`WebCrypto and @noble/ed25519 make the same signature: ${vector.name}`, async () => {
    const { signature, ...unsigned } = exact(vector.transaction);
    for (const library of [undefined, noble]) {
      const signer = await Ed25519Signer.fromSeed(keys[0].seed, library);
      assert.equal((await signer.sign(unsigned)).signature, signature);
    }
  });
}

for (const { field, transaction } of refused) {
  test(`an impossible ${field} is refused by name: ${JSON.stringify(transaction[field]).slice(0, 40)}`, () => {
    assert.throws(() => toProtobuf(exact(transaction)), (error) => error instanceof TransactionError && error.field === field);
  });
}

test("a number that is not exact is refused: beyond 2^53 it has to be a bigint", () => {
  const tx = { ...exact(vectors[0].transaction), nonce: 2 ** 53 };
  assert.throws(() => signingBytes(tx), /nonce: .*bigint/);
  assert.throws(() => signingBytes({ ...tx, nonce: 1.5 }), TransactionError);
});

test("seed, PEM file and address are of one key, and a new key's PEM can be read again", async () => {
  for (const key of keys) {
    assert.equal((await Ed25519Signer.fromSeed(key.seed)).address, key.address);
    assert.equal((await Ed25519Signer.fromPem(key.pem)).address, key.address);
    assert.equal(encodeAddress(decodeAddress(key.address)), key.address);
  }
  const { signer, pem } = await Ed25519Signer.generate();
  assert.equal((await Ed25519Signer.fromPem(pem)).address, signer.address);
  await assert.rejects(async () => Ed25519Signer.fromPem("no"), /PEM/);
  await assert.rejects(async () => Ed25519Signer.fromSeed("00"), RangeError);
});

test("official SDKs' hashes of a relayed transaction are ours", () => {
  for (const { transaction, javascript, python } of readVectors("sdk_hashes.json").vectors) {
    const { clientHash, sdkHash, chainHash } = hashesOf(transaction);
    assert.equal(python, chainHash ?? clientHash);
    assert.equal(javascript, chainHash ?? sdkHash);
  }
});

test("the network's own vectors: signing JSON, protobuf form, hash", () => {
  for (const { transaction, values } of readVectors("transactions.json").vectors) {
    assert.equal(text(signingBytes(transaction)), values.signingJson);
    if (values.messageToSignHex) assert.equal(hex(signingMessage(transaction)), values.messageToSignHex);
    if (values.protobufHex) assert.equal(hex(toProtobuf(transaction)), values.protobufHex);
    if (values.hash) assert.equal(hashesOf(transaction).chainHash, values.hash);
    const early = values.clientSideHashWithoutRelayerSignature;
    if (early) assert.equal(hashesOf(transaction).clientHash, early);
  }
});

test("the shard of an address, by both rules", () => {
  for (const { lastByte, userShard, mod3 } of readVectors("sharding.json").table) {
    const key = new Uint8Array(32).fill(1);
    key[31] = lastByte;
    assert.equal(shardOf(key, "modulo"), mod3);
    assert.equal(shardOf(encodeAddress(key), "mask"), userShard);
  }
});
