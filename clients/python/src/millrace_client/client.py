"""An aggregator and a relayer together: from a quote to a swap that somebody else pays the gas of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from typing import Self

import msgspec

from millrace_client.aggregator import Aggregator, Option
from millrace_client.errors import ClientError
from millrace_client.handle import Handle
from millrace_client.http import Patience, Traceparent
from millrace_client.messages import GasRules, Relayers
from millrace_client.quotes import MultiSwap, Quote
from millrace_client.relayer import Relayer
from millrace_client.submitted import Submitted
from millrace_client.swap_checks import (
    ANY_CONTRACT,
    CONTRACTS,
    NATIVE,
    Bounds,
    checked_multi_swap,
    checked_quote,
)
from millrace_client.transaction import Transaction, from_base64, replaced
from millrace_client.wallet import Signer, address_of, guarded, sign

LOCAL_AGGREGATOR, LOCAL_RELAYER, LOCAL_WS = "http://127.0.0.1:8100", "http://127.0.0.1:8201", "ws://127.0.0.1:8200/ws"
"""Where `millrace up` has them."""


class Millrace:
    """Both services; `aggregator` and `relayer` are their whole clients. Use it as an async context manager.

    What they give to sign is compared with what was asked, see `Mismatch`. Swaps call the contract that is known on
    their chain, or the one that `contract` names; "any" takes the aggregator's word for it. `headers` go to
    both services, `api_key` to the relayer alone. `traceparent` is asked for the W3C trace context of each question and
    submission, and sent with it.
    """

    def __init__(
        self,
        aggregator_url: str = LOCAL_AGGREGATOR,
        relayer_url: str = LOCAL_RELAYER,
        relayer_ws_url: str = LOCAL_WS,
        *,
        timeout: float = 10.0,
        patience: Patience | None = None,
        headers: Mapping[str, str] | None = None,
        api_key: str | None = None,
        relayers: Relayers | None = None,
        chain_api_url: str | None = None,
        max_gas_price: int | None = None,
        contract: str | None = None,
        traceparent: Traceparent | None = None,
    ) -> None:
        self._contract = contract
        self._gas_price = Bounds().gas_price if max_gas_price is None else max_gas_price
        self.aggregator = Aggregator(
            aggregator_url,
            timeout=timeout,
            patience=patience,
            headers=headers,
            contract=contract,
            max_gas_price=max_gas_price,
            traceparent=traceparent,
        )
        self.relayer = Relayer(
            relayer_url,
            relayer_ws_url,
            timeout=timeout,
            patience=patience,
            headers=headers,
            api_key=api_key,
            relayers=relayers,
            chain_api_url=chain_api_url,
            max_gas_price=max_gas_price,
            traceparent=traceparent,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection."""
        await self.aggregator.close()
        await self.relayer.close()

    async def quote(
        self,
        from_token: str,
        to_token: str,
        *,
        amount_in: int | None = None,
        amount_out: int | None = None,
        slippage: str | Decimal | float | None = None,
        sender: str | None = None,
        amount_in_max: int | None = None,
        amount_out_min: int | None = None,
        **options: Option,
    ) -> Quote:
        """A quote, see `Aggregator.quote`; name the `sender` of a swap that is to be made."""
        return await self.aggregator.quote(
            from_token,
            to_token,
            amount_in=amount_in,
            amount_out=amount_out,
            slippage=slippage,
            sender=sender,
            amount_in_max=amount_in_max,
            amount_out_min=amount_out_min,
            **options,
        )

    async def swap(
        self,
        quote: Quote,
        wallet: Signer,
        guardian: Signer | None = None,
        *,
        sponsored: bool = True,
        amount_in_max: int | None = None,
        amount_out_min: int | None = None,
        nonce: int | None = None,
        gas_limit: int | None = None,
        referral_id: int = 0,
    ) -> Handle:
        """Make a quoted swap: prepared, signed by the wallet, paid for by the relayer. Raises `Refused`, `Mismatch`.

        `guardian` is the second wallet of a guarded account. Not `sponsored`: the wallet pays. `nonce`: where neither
        relayer nor chain API can say. A deployment that gives no transaction, only its `tx_data`, leaves the rest to
        this client: name what is enough (`amount_out_min`) where it does not tell `amountOut`, the `gas_limit` where it
        tells none, and the `referral_id` that the question named.
        """
        slippage: float | None = 1.0 if quote.slippage is None or amount_out_min is not None else quote.slippage
        credited = None if quote.transaction else referral_id  # of a transaction it was compared when the quote came
        if quote.transaction is None:
            quote = await self._whole(quote, address_of(wallet), gas_limit)
            slippage = None if amount_out_min is None else slippage  # perhaps nobody has looked at its own yet
        checked_quote(
            quote,
            sender=address_of(wallet),
            from_token=quote.from_,
            to_token=quote.to,
            amount_in=quote.amount_in,
            amount_out=None,
            slippage=slippage,
            contract=self._contract,
            bounds=Bounds(amount_in_max, amount_out_min, self._gas_price),
            referral_id=credited,
        )
        transaction = _plain(_transaction_of(quote))
        # Which nonce is next the relayer knows best: what the quote says may be behind what is under way.
        next_one = nonce if sponsored or nonce is not None else transaction.nonce
        return await self.send(replaced(transaction, nonce=next_one), wallet, guardian, sponsored=sponsored)

    async def _whole(self, quote: Quote, sender: str, gas_limit: int | None) -> Quote:
        """The quote with the transaction that its payload is for. Raises `ClientError` where too little is known."""
        chain_id = (await self.relayer.relayers()).chain_id
        contract = CONTRACTS.get(chain_id) if self._contract in (None, ANY_CONTRACT) else self._contract
        gas = gas_limit or quote.estimated_gas_limit
        if contract is None or gas is None:
            raise ClientError(
                f"the aggregator gives no transaction, and no contract is known on chain {chain_id}: name it (contract)"
                if contract is None
                else "the aggregator says nothing of gas: name the gas_limit of this swap"
            )
        is_of_several = from_base64("txData", quote.tx_data).startswith(b"MultiESDTNFTTransfer@")
        transaction = Transaction(
            value=str(quote.amount_in or 0) if quote.from_ == NATIVE and not is_of_several else "0",
            receiver=sender if is_of_several else contract,
            sender=sender,
            gas_price=GasRules().min_gas_price,
            gas_limit=gas,
            data=quote.tx_data,
            chain_id=chain_id,
            version=2,
        )
        return msgspec.structs.replace(quote, transaction=transaction)

    async def send(
        self, transaction: Transaction, wallet: Signer, guardian: Signer | None = None, *, sponsored: bool = True
    ) -> Handle:
        """The same of any transaction."""
        asked = guarded(transaction, guardian, GasRules().extra_gas_guarded)
        if sponsored:
            return await self.relayer.relay(await sign(await self.relayer.prepare(asked), wallet, guardian))
        nonce = await self.relayer.nonce_of(asked.sender) if asked.nonce is None else asked.nonce
        if nonce is None:
            raise ClientError("the nonce is not known: give it, or a chain_api_url that tells it")
        return await self.relayer.broadcast(await sign(replaced(asked, nonce=nonce, relayer=""), wallet, guardian))

    async def swap_each(
        self, multi_swap: MultiSwap, wallet: Signer, guardian: Signer | None = None, *, sponsored: bool = True
    ) -> AsyncIterator[Handle]:
        """Make the batches of a multi-swap one by one: each is sent when the one before has ended well.

        Each is quoted on the pools as the one before leaves them. Yields each one's handle, and stops after one that
        failed. Raises as `swap` does, and `OutcomeUnknown`.
        """
        for transaction in self._batches(multi_swap, wallet):
            handle = await self.send(transaction, wallet, guardian, sponsored=sponsored)
            yield handle
            if (await handle.final()).state != "success":
                return

    async def swap_all(self, multi_swap: MultiSwap, wallet: Signer, guardian: Signer | None = None) -> Submitted:
        """Make all batches of a multi-swap at once, in their order.

        Raises `Refused` where the first would not be sponsored.
        """
        gas = GasRules().extra_gas_guarded
        asked = [guarded(transaction, guardian, gas) for transaction in self._batches(multi_swap, wallet)]
        if not asked:
            return Submitted([], [])
        prepared = await self.relayer.prepare_all(asked)
        return await self.relayer.relay_all([await sign(transaction, wallet, guardian) for transaction in prepared])

    def _batches(self, multi_swap: MultiSwap, wallet: Signer) -> list[Transaction]:
        """The transactions of a multi-swap without nonces: those count from 0 where nobody told the first."""
        checked_multi_swap(
            multi_swap,
            sender=address_of(wallet),
            inputs=None,
            to_token=multi_swap.to,
            slippage=multi_swap.slippage,
            contract=self._contract,
            referral_id=None,
            gas_price=self._gas_price,
        )
        return [replaced(_plain(_transaction_of(batch)), nonce=None) for batch in multi_swap.batches]


def _transaction_of(answer: object) -> Transaction:
    found = getattr(answer, "transaction", None)
    if not isinstance(found, Transaction):
        raise ClientError("the answer holds no transaction: ask for it with sender=wallet.address")
    return found


def _plain(told: Transaction) -> Transaction:
    """The fields of an aggregator's transaction that were looked at, and no others."""
    return Transaction(
        nonce=told.nonce,
        value=told.value,
        receiver=told.receiver,
        sender=told.sender,
        gas_price=told.gas_price,
        gas_limit=told.gas_limit,
        data=told.data,
        chain_id=told.chain_id,
        version=told.version,
    )
