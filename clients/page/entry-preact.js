import { h } from "preact";
import htm from "htm";

export { render, Fragment } from "preact";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export const html = htm.bind(h);
