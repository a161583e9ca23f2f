// Exchanges by colour, always with their name beside it.

const COLOURS = { xexchange: "--x1", onedex: "--x2", jex: "--x3", ashswap: "--x4" };

export const colourOf = (exchange) => `var(${COLOURS[exchange.toLowerCase()] ?? "--line-strong"})`;
