/** The looks of `/docs`, light and dark. */
export const STYLE = `
:root { --ground: #fbfaf8; --panel: #fff; --ink: #1d2129; --soft: #5d6675; --line: #e4e1da; --accent: #2456c9; --get: #17734a; --post: #2456c9; --bad: #a3341f; --code: #f1efea; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14161b; --panel: #1b1e25; --ink: #e7e9ee; --soft: #9aa3b2; --line: #2d323c; --accent: #8fb0ff; --get: #6fd3a3; --post: #8fb0ff; --bad: #f0907c; --code: #252932; }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
body { margin: 0; display: grid; grid-template-columns: 17rem minmax(0, 1fr); background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.5rem 1rem; border-right: 1px solid var(--line); font-size: .875rem; }
nav .home { display: block; margin: 0 .5rem 1rem; font-weight: 700; font-size: 1rem; color: var(--ink); text-decoration: none; }
nav h2 { margin: 1.25rem .5rem .25rem; font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--soft); }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li a { display: flex; gap: .5rem; align-items: baseline; padding: .25rem .5rem; border-radius: .375rem; color: var(--ink); text-decoration: none; }
nav li a:hover, nav li a:focus-visible { background: var(--code); }
main { max-width: 54rem; width: 100%; margin: 0 auto; padding: 2.5rem 2rem 6rem; }
h1 { margin: 0; font-size: 2rem; line-height: 1.2; }
section > h2 { margin: 3rem 0 0; font-size: 1.375rem; }
section > p { color: var(--soft); margin: .25rem 0 1rem; }
h3 { margin: 0; font-size: 1.125rem; }
h4 { margin: 1.25rem 0 .25rem; font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--soft); }
a { color: var(--accent); }
article { margin: 1rem 0; padding: 1.25rem 1.5rem; background: var(--panel); border: 1px solid var(--line); border-radius: .75rem; }
article:target { border-color: var(--accent); }
article p { margin: .5rem 0; }
code, pre { font: .875em/1.5 ui-monospace, monospace; }
code { background: var(--code); padding: .1em .3em; border-radius: .25rem; overflow-wrap: anywhere; }
pre { margin: .5rem 0 0; padding: .75rem 1rem; background: var(--code); border-radius: .5rem; overflow-x: auto; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
var { font-style: normal; color: var(--accent); }
.version, .access, .kind, small { color: var(--soft); font-size: .875rem; }
.call { display: flex; gap: .5rem; align-items: center; }
.method { flex: none; font: 700 .6875rem/1 ui-monospace, monospace; color: var(--get); min-width: 2.25rem; }
.method.post { color: var(--post); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); text-align: left; vertical-align: top; }
th { width: 11rem; font-weight: 400; }
td p { margin: .125rem 0 0; }
.kind b { color: var(--bad); font-weight: 600; }
.nested { margin-top: .5rem; padding-left: .75rem; border-left: 2px solid var(--line); }
details, .answer { margin: .375rem 0; font-size: .9375rem; }
summary { cursor: pointer; }
.status { display: inline-block; min-width: 2.25rem; font: 700 .8125rem/1 ui-monospace, monospace; }
.status.good { color: var(--get); }
.status.bad { color: var(--bad); }
@media (max-width: 48rem) {
  body { display: block; }
  nav { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line); }
  main { padding: 1.5rem 1rem 4rem; }
  th, td { display: block; width: auto; padding: .375rem 0 0; border-top: 0; }
  tr { display: block; padding: .375rem 0; border-top: 1px solid var(--line); }
  html { scroll-behavior: auto; }
}
`
