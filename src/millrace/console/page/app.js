// The page: a header with the tabs, and the tab that the address names (`#/swap`). A tab is a module of ./tabs that is
// loaded when it is first shown and exports `default`, a component; add it to the header in index.html, which is there
// before any script is.

import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { Problem } from "./lib/ui.js";

const TABS = [...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(2), link.textContent]);
const THEMES = { auto: ["light dark", "Colours as the system has them"], light: ["light", "Light colours"], dark: ["dark", "Dark colours"] };
const MARKS = { auto: "◐", light: "☀", dark: "☾" };
const loaded = new Map();

function named() {
  const name = location.hash.replace(/^#\//, "").split("?")[0];
  return TABS.some(([tab]) => tab === name) ? name : TABS[0][0];
}

function useTab() {
  const [tab, setTab] = useState(named);
  useEffect(() => {
    const changed = () => setTab(named());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return tab;
}

/** The tab's component, as soon as it is loaded. */
function Tab({ name }) {
  const [state, setState] = useState({ name: "" });
  useEffect(() => {
    let gone = false;
    const load = async () => {
      try {
        if (!loaded.has(name)) loaded.set(name, (await import(`./tabs/${name}.js`)).default);
        if (!gone) setState({ name, component: loaded.get(name) });
      } catch (error) {
        if (!gone) setState({ name, error });
      }
    };
    void load();
    return () => { gone = true; };
  }, [name]);
  if (state.name !== name) return html`<p class="sub">Loading…</p>`;
  if (state.error) return html`<${Problem} error=${state.error}/>`;
  return html`<${state.component}/>`;
}

function Theme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "auto");
  const shown = THEMES[theme] ? theme : "auto";
  useEffect(() => {
    document.documentElement.style.colorScheme = THEMES[shown][0];
    localStorage.setItem("theme", shown);
    dispatchEvent(new Event("themechange"));
  }, [shown]);
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(shown) + 1) % names.length];
  return html`<button type="button" class="theme" aria-label=${`${THEMES[shown][1]}; change`} title=${THEMES[shown][1]} onClick=${() => setTheme(next)}>${MARKS[shown]}</button>`;
}

function App() {
  const tab = useTab();
  const main = useRef();
  useEffect(() => { document.title = `${TABS.find(([name]) => name === tab)[1]} · millrace`; }, [tab]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>To the content</a>
    <header class="top">
      <h1 class="brand"><img src="mark.svg" alt="" width="26" height="26"/>millrace</h1>
      <nav aria-label="Sections">${TABS.map(([name, text]) => html`
        <a key=${name} href=${`#/${name}`} aria-current=${name === tab ? "page" : undefined}>${text}</a>`)}
      </nav><${Theme}/>
    </header>
    <main id="main" ref=${main} tabindex="-1"><${Tab} name=${tab} key=${tab}/></main>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App}/>`, root);
