// What went wrong in a person's words: what happened, then what to do. The services' own words stay beside it.

const WORDS = [
  [/insufficient balance/, "The wallet does not hold enough for this swap.", "Pay less, or fund the wallet."],
  [/not enough gas|out of gas/, "The gas limit was too low for this route.", "Try again: a new quote has a new limit."],
  [/insufficient funds/, "The wallet cannot pay for this.", "Fund it, or let the relayer pay the gas."],
  [/slippage|amountOutMin|below the minimum|less than (the )?min|Output amount/i, "The price moved further than the slippage that you allowed, so that the swap was undone.", "Your tokens are back; swap again, or allow more slippage."],
  [/execution failed/, "The contract undid the swap, most often because the price moved further than you allowed.", "Your tokens are back; try again."],
  [/nonce too low|invalid nonce|conflicting transaction/, "Another transaction of this wallet came first.", "Try again."],
  [/nonce too high/, "An earlier transaction of this wallet is still on its way.", "Wait a few seconds and try again."],
  [/no path between tokens/, "There is no way from the one token to the other.", "Choose another pair."],
  [/unknown token/, "This token is not traded here.", "Choose another one."],
  [/simulation failed/, "No route can carry this amount.", "Try less."],
  [/rate limit|too many/, "That were too many requests.", "Wait a moment."],
  [/paused/, "The relayer pays for nobody at the moment.", "Try later."],
  [/budget|quota|short of funds/, "The relayer has used up what it may spend for now.", "Try later, or pay the gas yourself."],
  [/service unavailable|no answer from/, "The service does not answer.", "This page goes on trying."],
];

/** `{text, advice, detail}` of an exception or of a reason that a service gave. */
export function explained(error) {
  const detail = typeof error === "string" ? error : (error?.message ?? String(error));
  if (error?.name === "Mismatch") {
    return { text: "The service answered something else than was asked for. Nothing was signed.", advice: "", detail };
  }
  if (error?.name === "WalletError") return { text: "The wallet did not sign. Nothing was sent.", advice: "", detail };
  if (error?.name === "OutcomeUnknown") {
    return { text: "Nobody could say in time what became of it.", advice: "Look for its hash before you try again.", detail };
  }
  if (error?.name === "Unreachable") {
    return { text: "The service does not answer.", advice: "This page goes on trying.", detail };
  }
  const found = WORDS.find(([pattern]) => pattern.test(detail));
  return found ? { text: found[1], advice: found[2], detail } : { text: detail, advice: "", detail: "" };
}
