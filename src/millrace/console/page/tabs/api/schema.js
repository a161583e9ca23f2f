// JSON Schema as far as our documents use it.

/** What a reference within the document stands for; anything else stands for itself. */
export function resolved(document, value) {
  let found = value;
  for (let step = 0; found?.$ref && step < 8; step++) {
    found = found.$ref.slice(2).split("/").reduce((part, name) => part?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], document);
  }
  return found;
}

/** A schema's type in words. */
export function typed(document, schema) {
  const own = schema ?? {};
  if (own.const !== undefined) return JSON.stringify(own.const);
  if (own.enum) return own.enum.map((value) => JSON.stringify(value)).join(" or ");
  const several = own.anyOf ?? own.oneOf;
  if (several) return several.map((one) => typed(document, one)).join(" or ");
  if (own.$ref) {
    const target = resolved(document, own);
    return target?.enum ? typed(document, target) : own.$ref.split("/").at(-1);
  }
  if (own.type === "array") return `list of ${typed(document, own.items)}`;
  if (own.type === "object" && own.additionalProperties && own.additionalProperties !== true) return `table of ${typed(document, own.additionalProperties)}`;
  return Array.isArray(own.type) ? own.type.join(" or ") : (own.type ?? "anything");
}

/** The object schema that a schema leads to, through lists and alternatives; undefined if there is none. */
export function inner(document, schema) {
  const found = resolved(document, schema);
  if (!found) return undefined;
  if (found.properties) return found;
  if (found.items) return inner(document, found.items);
  if (found.additionalProperties && found.additionalProperties !== true) return inner(document, found.additionalProperties);
  return (found.anyOf ?? found.oneOf)?.map((one) => inner(document, one)).find(Boolean);
}

/** Something that fits a schema, to begin with: what is required, with its defaults. */
export function example(document, schema, depth = 0) {
  const found = resolved(document, schema) ?? {};
  for (const known of [found.example, found.examples?.[0], found.default, found.const, found.enum?.[0]]) {
    if (known !== undefined) return known;
  }
  if (found.properties && depth < 6) {
    const names = found.required ?? [];
    return Object.fromEntries(names.map((name) => [name, example(document, found.properties[name], depth + 1)]));
  }
  if (found.type === "array") return depth < 6 ? [example(document, found.items, depth + 1)] : [];
  const several = found.anyOf ?? found.oneOf;
  if (several) return example(document, several[0], depth + 1);
  return { integer: 0, number: 0, boolean: false, object: {} }[found.type] ?? "";
}
