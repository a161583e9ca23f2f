"""An aggregator and a relayer together: from a quote to a swap that somebody else pays the gas of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from millrace_client.aggregator import Aggregator
from millrace_client.errors import ClientError
from millrace_client.handle import Handle
from millrace_client.http import Patience
from millrace_client.messages import Relayers
from millrace_client.quotes import MultiSwap, Quote
from millrace_client.relayer import Relayer
from millrace_client.submitted import Submitted
from millrace_client.swap_checks import checked_multi_swap, checked_quote
from millrace_client.transaction import Transaction
from millrace_client.wallet import Signer, address_of, sign

LOCAL_AGGREGATOR, LOCAL_RELAYER, LOCAL_WS = "http://127.0.0.1:8100", "http://127.0.0.1:8201", "ws://127.0.0.1:8200/ws"
"""Where `millrace up` has them."""


class Millrace:
    """Both services; `aggregator` and `relayer` are their whole clients. Use it as an async context manager.

    What they give to sign is compared with what was asked, see `Mismatch`. Swaps call the contract that is known on
    their chain, or the one that `contract` names; "any" takes the aggregator's word for it.
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
    ) -> None:
        self._contract = contract
        self.aggregator = Aggregator(
            aggregator_url, timeout=timeout, patience=patience, headers=headers, contract=contract
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

    async def swap(self, quote: Quote, wallet: Signer, guardian: Signer | None = None) -> Handle:
        """Make a quoted swap: prepared, signed by the wallet, paid for by the relayer. Raises `Refused`, `Mismatch`."""
        if quote.transaction is not None:
            checked_quote(
                quote,
                sender=address_of(wallet),
                from_token=quote.from_,
                to_token=quote.to,
                amount_in=quote.amount_in,
                amount_out=None,
                slippage=1.0 if quote.slippage is None else quote.slippage,
                contract=self._contract,
                referral_id=None,  # was compared when the quote came
            )
        return await self.send(_transaction_of(quote), wallet, guardian)

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
