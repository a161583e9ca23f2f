// The official JavaScript SDK's network providers at work on a chain of which it is told where it is and what there is:
// node providers.mjs URL SEED WRAPPER TOKEN. It prints what each of them found, and how a call and a transfer ended.
import {
  Account, Address, ApiNetworkProvider, ProxyNetworkProvider, SmartContractTransactionsFactory,
  SmartContractTransactionsOutcomeParser, Token, TokenTransfer, TransactionsFactoryConfig, TransferTransactionsFactory,
  UserSecretKey,
} from "@multiversx/sdk-core";

const [url, seed, wrapper, token] = process.argv.slice(2);
const account = new Account(UserSecretKey.fromString(seed));
const contract = Address.newFromBech32(wrapper);
const config = new TransactionsFactoryConfig({ chainID: "local" });
const named = { clientName: "millrace-tests" };
const awaiting = { pollingIntervalInMilliseconds: 20, timeoutInMilliseconds: 10_000, patienceInMilliseconds: 1 };

async function signed(transaction, provider) {
  transaction.nonce = (await provider.getAccount(account.address)).nonce;
  transaction.signature = await account.signTransaction(transaction);
  return transaction;
}

async function ended(transaction, provider) {
  const hash = await provider.sendTransaction(await signed(transaction, provider));
  return await provider.awaitTransactionCompleted(hash, awaiting);
}

for (const provider of [new ApiNetworkProvider(url, named), new ProxyNetworkProvider(url, named)]) {
  const { guarded } = provider.getGuardianData ? await provider.getGuardianData(account.address) : { guarded: false };
  const held = await provider.getFungibleTokensOfAccount(account.address);
  const one = await provider.getTokenOfAccount(account.address, new Token({ identifier: token }));
  const definition = await provider.getDefinitionOfFungibleToken(token);
  const status = await provider.getNetworkStatus(1);
  const call = await new SmartContractTransactionsFactory({ config }).createTransactionForExecute(account.address, {
    contract, function: "wrapEgld", gasLimit: 10_000_000n, nativeTransferAmount: 5n,
  });
  const { txGasUnits, gasLimit = txGasUnits } = await provider.estimateTransactionCost(await signed(call, provider));
  const wrapped = await ended(call, provider);
  const outcome = new SmartContractTransactionsOutcomeParser().parseExecute({ transactionOnNetwork: wrapped });
  const transfer = await new TransferTransactionsFactory({ config }).createTransactionForESDTTokenTransfer(account.address, {
    receiver: contract, tokenTransfers: [new TokenTransfer({ token: new Token({ identifier: token }), amount: 1000n })],
  });
  const refused = await ended(transfer, provider);
  console.log(JSON.stringify({
    guarded, held: held.map((item) => [item.token.identifier, String(item.amount)]), one: String(one.amount),
    decimals: definition.decimals, final: status.highestFinalNonce <= status.blockNonce,
    gas: Number(gasLimit) > 0, call: [wrapped.status.toString(), wrapped.function, outcome.returnCode],
    refused: refused.status.isFailed(),
  }));
}
