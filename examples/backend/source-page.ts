import { html } from 'hono/html'
import type { Game } from './games.ts'

const TOKENS = new RegExp(
  [
    /(?<comment>\/\*[\s\S]*?\*\/|\/\/[^\n]*)/,
    /(?<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)/,
    /(?<number>\b\d[\d_]*(?:\.\d+)?\b)/,
    /(?<keyword>\b(?:import|from|export|default|const|let|type|interface|function|return|if|else|for|of|in|new|throw|delete|null|undefined|true|false|readonly)\b)/,
    /(?<name>\b[A-Za-z_$][\w$]*(?=\())/,
  ]
    .map((part) => part.source)
    .join('|'),
  'g',
)

type Html = ReturnType<typeof html>

/** TypeScript as lines of HTML, with spans for comments, strings, numbers, keywords and called names. */
function highlight(source: string): (string | Html)[][] {
  const lines: (string | Html)[][] = [[]]
  const add = (text: string, kind?: string): void => {
    for (const [i, part] of text.split('\n').entries()) {
      // Each line becomes a separate element, so a span must end with its line.
      if (i > 0) lines.push([])
      if (part !== '') lines.at(-1)!.push(kind ? html`<span class="t-${kind}">${part}</span>` : part)
    }
  }
  let end = 0
  for (const match of source.matchAll(TOKENS)) {
    add(source.slice(end, match.index))
    add(match[0], Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined)?.[0])
    end = match.index + match[0].length
  }
  add(source.slice(end))
  return lines
}

/** Returns the page that shows a room's source line by line, with the common head. `source` is TypeScript. */
export function sourcePage(game: Game, source: string): Html {
  const lines = highlight(source.trimEnd())
  return html`<title>How ${game} works – roomful</title>
<link rel="stylesheet" href="/source.css">
<body class="reading">
  <header class="bar">
    <a class="brand" href="/" aria-label="All games"><img src="/favicon.svg" alt=""><span>roomful</span></a>
    <nav><a class="button primary" href="/${game}/">Play ${game}</a></nav>
  </header>
  <main>
    <h1>How ${game} works</h1>
    <p class="lead">
      These ${lines.length} lines are the rules of the game. They run on the server. roomful sends the changes of the state to every
      player, and continues the room if a server fails.
    </p>
    <figure class="source">
      <figcaption><span>${game}/room.ts</span><a href="/${game}/room.ts">plain text</a></figcaption>
      <ol tabindex="0" aria-label="${game}/room.ts">${lines.map((line) => html`<li><code>${line.length > 0 ? line : ' '}</code></li>`)}</ol>
    </figure>
  </main>
</body>
`
}
