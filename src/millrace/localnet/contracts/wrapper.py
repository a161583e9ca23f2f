"""The EGLD wrapper: one wrapped unit for each unit of EGLD it holds."""

from millrace.chain.token import NATIVE
from millrace.localnet.contracts import gas
from millrace.localnet.contracts.frame import Contract, ContractError, Frame


class Wrapper(Contract):
    """`wrapEgld` takes EGLD and pays the wrapped token; `unwrapEgld` the other way."""

    code_bytes = gas.WRAPPER_CODE

    def __init__(self, address: bytes, token: str) -> None:
        super().__init__(address)
        self.token = token
        self.endpoints = {
            "wrapEgld": self._wrap,
            "unwrapEgld": self._unwrap,
        }

    def _wrap(self, frame: Frame) -> None:
        payment = frame.one_payment()
        if payment.token != NATIVE:
            raise ContractError("only EGLD accepted")
        frame.args.end()
        gas.wrap(frame.meter, self.address, nested=False)
        frame.mint(self.address, self.token, payment.amount)
        frame.pay(self.address, frame.caller, (self.token, payment.amount))

    def _unwrap(self, frame: Frame) -> None:
        payment = frame.one_payment()
        if payment.token != self.token:
            raise ContractError("Wrong esdt token")
        frame.args.end()
        gas.unwrap(frame.meter, self.address, nested=False)
        frame.burn(self.address, self.token, payment.amount)
        frame.pay(self.address, frame.caller, (NATIVE, payment.amount))

    def wrap_for(self, frame: Frame, contract: bytes, amount: int) -> None:
        """Wrap EGLD that another contract holds, which has been metered already."""
        frame.pay(contract, self.address, (NATIVE, amount))
        frame.mint(self.address, self.token, amount)
        frame.pay(self.address, contract, (self.token, amount))

    def unwrap_for(self, frame: Frame, contract: bytes, amount: int) -> None:
        """Unwrap what another contract holds, which has been metered already."""
        frame.pay(contract, self.address, (self.token, amount))
        frame.burn(self.address, self.token, amount)
        frame.pay(self.address, contract, (NATIVE, amount))
