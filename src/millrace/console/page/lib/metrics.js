// Metrics in Prometheus' text format.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;

/** `[{name, labels, value}]`; labels as they are written. */
export function samples(text) {
  return text.split("\n").flatMap((line) => {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    return name ? [{ name, labels, value: Number(value) }] : [];
  });
}

/** The sum over all labels. */
export const total = (found, name) => found.reduce((sum, sample) => (sample.name === name ? sum + sample.value : sum), 0);
