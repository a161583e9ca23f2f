// The official JavaScript SDK at work: each line of stdin is a request, each line of stdout its answer.
// A request names its sender's seed and the transaction's fields; the answer is the signed transaction as that SDK
// writes it for the network, and the hash it computes.
import { createInterface } from "node:readline";
import {
  Address, Token, TokenTransfer, Transaction, TransactionComputer, TransactionsFactoryConfig,
  TransferTransactionsFactory, UserSecretKey,
} from "@multiversx/sdk-core";

const computer = new TransactionComputer();

// A token transfer as the SDK's own factory makes it, where the request asks for one.
async function built(request) {
  if (!request.tokens) return Transaction.newFromPlainObject(request.transaction);
  const plain = request.transaction;
  const factory = new TransferTransactionsFactory({ config: new TransactionsFactoryConfig({ chainID: plain.chainID }) });
  const transaction = await factory.createTransactionForESDTTokenTransfer(Address.newFromBech32(plain.sender), {
    receiver: Address.newFromBech32(plain.receiver),
    tokenTransfers: request.tokens.map(
      ([identifier, nonce, amount]) =>
        new TokenTransfer({ token: new Token({ identifier, nonce: BigInt(nonce) }), amount: BigInt(amount) }),
    ),
  });
  transaction.nonce = BigInt(plain.nonce);
  transaction.gasPrice = BigInt(plain.gasPrice);
  transaction.gasLimit += 50_000n;
  if (plain.relayer) transaction.relayer = Address.newFromBech32(plain.relayer);
  return transaction;
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const transaction = await built(request);
  const sign = (seed) => UserSecretKey.fromString(seed).sign(computer.computeBytesForVerifying(transaction));
  transaction.signature = sign(request.seed);
  if (request.guardianSeed) transaction.guardianSignature = sign(request.guardianSeed);
  if (request.relayerSeed) transaction.relayerSignature = sign(request.relayerSeed);
  const answer = { transaction: transaction.toPlainObject(), hash: computer.computeTransactionHash(transaction) };
  console.log(JSON.stringify(answer));
}
