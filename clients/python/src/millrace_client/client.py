"""An aggregator and a relayer together: from a quote to a swap that somebody else pays the gas of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec

from millrace_client.aggregator import Aggregator
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
from millrace_client.transaction import Transaction, from_base64
from millrace_client.wallet import Signer, address_of, sign

LOCAL_AGGREGATOR, LOCAL_RELAYER, LOCAL_WS = "http://127.0.0.1:8100", "http://127.0.0.1:8201", "ws://127.0.0.1:8200/ws"
"""Where `millrace up` has them."""


class Millrace:
    """Both services; `aggregator` and `relayer` are their whole clients. Use it as an async context manager.

    What they give to sign is compared with what was asked, see `Mismatch`. Swaps call the contract that is known on
    their chain, or the one that `contract` names; "any" takes the aggregator's word for it. `traceparent` is asked for
    the W3C trace context of each question and submission, and sent with it.
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
        relayers: Relayers | None = None,
        chain_api_url: str | None = None,
        max_gas_price: int | None = None,
        contract: str | None = None,
        traceparent: Traceparent | None = None,
    ) -> None:
        self._contract = contract
        self.aggregator = Aggregator(
            aggregator_url,
            timeout=timeout,
            patience=patience,
            headers=headers,
            contract=contract,
            traceparent=traceparent,
        )
        self.relayer = Relayer(
            relayer_url,
            relayer_ws_url,
            timeout=timeout,
            patience=patience,
            headers=headers,
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
        slippage: str | float | None = None,
        sender: str | None = None,
        amount_in_max: int | None = None,
        amount_out_min: int | None = None,
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
        )

    async def swap(
        self,
        quote: Quote,
        wallet: Signer,
        guardian: Signer | None = None,
        *,
        amount_out_min: int | None = None,
        gas_limit: int | None = None,
    ) -> Handle:
        """Make a quoted swap: prepared, signed by the wallet, paid for by the relayer. Raises `Refused`, `Mismatch`.

        A deployment that gives no transaction, only its `tx_data`, leaves the rest to this client: name what is enough
        (`amount_out_min`) where it does not tell `amountOut`, and the `gas_limit` where it tells none.
        """
        slippage: float | None = 1.0 if quote.slippage is None or amount_out_min is not None else quote.slippage
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
            bounds=Bounds(amount_out_min=amount_out_min),
            referral_id=None,  # was compared when the quote came
        )
        return await self.send(_transaction_of(quote), wallet, guardian)

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

    async def send(self, transaction: Transaction, wallet: Signer, guardian: Signer | None = None) -> Handle:
        """The same of any transaction."""
        prepared = await self.relayer.prepare(transaction)
        return await self.relayer.relay(await sign(prepared, wallet, guardian))

    async def swap_all(self, multi_swap: MultiSwap, wallet: Signer, guardian: Signer | None = None) -> Submitted:
        """Make all batches of a multi-swap, in their order. Raises `Refused` where the first would not be sponsored."""
        if not multi_swap.batches:
            return Submitted([], [])
        checked_multi_swap(
            multi_swap,
            sender=address_of(wallet),
            inputs=None,
            to_token=multi_swap.to,
            slippage=multi_swap.slippage,
            contract=self._contract,
            referral_id=None,
        )
        prepared = await self.relayer.prepare_all([_without_nonce(_transaction_of(b)) for b in multi_swap.batches])
        return await self.relayer.relay_all([await sign(transaction, wallet, guardian) for transaction in prepared])


def _transaction_of(answer: object) -> Transaction:
    found = getattr(answer, "transaction", None)
    if not isinstance(found, Transaction):
        raise ClientError("the answer holds no transaction: ask for it with sender=wallet.address")
    return found


def _without_nonce(transaction: Transaction) -> Transaction:
    """Multi-swaps count from 0 where the service does not know the nonce; the relayer does."""
    from millrace_client.transaction import replaced

    return replaced(transaction, nonce=None)
