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

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escapeHtml = (text: string) => text.replace(/[&<>"]/g, (character) => ENTITIES[character] ?? character)

/** TypeScript as HTML, with spans for comments, strings, numbers, keywords and called names. */
function highlight(source: string): string {
  let html = ''
  let end = 0
  for (const match of source.matchAll(TOKENS)) {
    const kind = Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined)?.[0] ?? ''
    // A span never crosses a line, because each line becomes an element of its own.
    const spans = match[0].split('\n').map((line) => `<span class="t-${kind}">${escapeHtml(line)}</span>`)
    html += escapeHtml(source.slice(end, match.index)) + spans.join('\n')
    end = match.index + match[0].length
  }
  return html + escapeHtml(source.slice(end))
}

/** The page that shows the room of a game, line by line. `source` is TypeScript. */
export function sourcePage(game: Game, source: string): string {
  const lines = highlight(source.trimEnd()).split('\n')
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>How ${game} works – roomful</title>
    <link rel="icon" href="/favicon.svg" type="image/svg+xml">
    <link rel="stylesheet" href="/site.css">
    <link rel="stylesheet" href="/source.css">
  </head>
  <body class="reading">
    <header class="bar">
      <a class="brand" href="/"><img src="/favicon.svg" alt=""><span>roomful</span></a>
      <nav><a class="button primary" href="/${game}/">Play ${game}</a></nav>
    </header>
    <main>
      <h1>How ${game} works</h1>
      <p class="lead">
        These ${lines.length} lines run in the data plane, one turn after the other. Everything else is roomful: what they
        change reaches every member, and outlives the node it happened on.
      </p>
      <figure class="source">
        <figcaption><span>${game}/room.ts</span><a href="/${game}/room.ts">plain text</a></figcaption>
        <ol>${lines.map((line) => `<li><code>${line || ' '}</code></li>`).join('')}</ol>
      </figure>
    </main>
  </body>
</html>
`
}
