// The tokens that can be traded: the most liquid are loaded once, others when they are searched for or named.

import { aggregator } from "./services.js";

const PAGE = 100;
const known = new Map();
let first;

const remember = ({ tokens }) => {
  for (const token of tokens) known.set(token.identifier, token);
  return tokens;
};

/** The first hundred, most liquid first. Throws what the aggregator throws. */
export function listed() {
  first ??= aggregator.tokens({ limit: PAGE }).then(remember).catch((error) => {
    first = undefined;
    throw error;
  });
  return first;
}

/** Those whose identifier, name or ticker has this text in it. */
export const search = async (text) => (text ? remember(await aggregator.tokens({ search: text, limit: PAGE })) : listed());

/** One token by its identifier; undefined for one that is not traded. */
export async function named(identifier) {
  await listed();
  if (!known.has(identifier)) await search(identifier);
  return known.get(identifier);
}

/** What is known of a token already. */
export const remembered = (identifier) => known.get(identifier);
