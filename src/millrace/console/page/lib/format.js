// Numbers, amounts and times as people read them. Amounts are strings of smallest units and never become floats.

const GROUPS = /\B(?=(\d{3})+$)/g;

/** `1234567` with 2 decimals is "12,345.67"; `digits` decimals at most, the rest is cut and never rounded up. */
export function amount(units, decimals, digits = 6) {
  const text = BigInt(units).toString();
  const sign = text.startsWith("-") ? "−" : "";
  const padded = text.replace("-", "").padStart(decimals + 1, "0");
  const whole = padded.slice(0, padded.length - decimals).replace(GROUPS, ",");
  const rest = padded.slice(padded.length - decimals);
  // Of a small amount its first digits are shown, not zeros.
  const zeros = whole === "0" ? (/^0*/.exec(rest)?.[0].length ?? 0) : 0;
  const shown = rest.slice(0, zeros < digits ? digits : zeros + 3).replace(/0+$/, "");
  return sign + whole + (shown ? `.${shown}` : "");
}

const TYPED = /^(\d{0,60}|\d{1,3}(?:,\d{3}){1,19})(?:\.(\d*))?$/;

/**
 * What somebody typed, in smallest units: a bigint; null for what is no amount, or has more decimals than the token. A
 * comma stands between groups of three alone: "1,5" is not read as 15.
 */
export function units(text, decimals) {
  const [, whole = "", typed = ""] = TYPED.exec(text.trim()) ?? [];
  if (!(whole + typed)) return null;
  const rest = typed.replace(/0+$/, "");
  return rest.length > decimals ? null : BigInt((whole.replaceAll(",", "") || "0") + rest.padEnd(decimals, "0"));
}

/** The same amount with its whole part grouped: "2500.7" is "2,500.7". What is no amount stays as it is. */
export function grouped(text) {
  const [, whole, rest] = TYPED.exec(text.trim()) ?? [];
  if (whole === undefined) return text;
  return whole.replaceAll(",", "").replace(GROUPS, ",") + (rest === undefined ? "" : `.${rest}`);
}

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SIGNIFICANT = Array.from({ length: 22 }, () => undefined); // made when first needed: to make one costs as much as to use it often

/** A number for people: `digits` significant ones, or a dash for what is not known. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return WHOLE.format(value);
  SIGNIFICANT[digits] ??= new Intl.NumberFormat("en-US", { maximumSignificantDigits: digits });
  return SIGNIFICANT[digits].format(value);
}

/** Millions and thousands in one letter: 12.3 M. */
export function compact(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [step, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= step) return `${(value / step).toPrecision(3)} ${letter}`;
  }
  return number(value, 3);
}

/** A fraction in per cent. */
export function percent(fraction, digits = 2) {
  if (fraction === null || fraction === undefined || !Number.isFinite(fraction)) return "–";
  return `${(fraction * 100).toFixed(digits)} %`;
}

export function dollars(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  if (value >= 1e5) return `$${compact(value)}`;
  return `$${value.toLocaleString("en-US", value >= 0.995 || value === 0 ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { maximumSignificantDigits: 3 })}`;
}

/** 24-hour time of milliseconds since 1970. */
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

/** A duration in the unit that suits it. */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${Math.round(ms / 86_400_000)} days`;
}

/** `USDC-c76f1f` is USDC. */
export const ticker = (identifier) => identifier.replace(/-[0-9a-f]{6}$/, "");

/** The ends of a hash or an address. */
export const ends = (text, count = 6) => (text.length > 2 * count + 1 ? `${text.slice(0, count)}…${text.slice(-count)}` : text);
