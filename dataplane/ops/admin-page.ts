import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { bundlePage, type PageParts } from './page/bundle.ts'

/** A web page in one piece, and the headers that let it run nothing but itself. */
export interface Page {
  readonly html: string
  readonly headers: Readonly<Record<string, string>>
}

/** Where the build leaves what it has made of `page/`. */
const BUILT = new URL('./page/page.json', import.meta.url)

/**
 * The page of `GET /admin`. Its content security policy allows the page's own style and script by their hashes and requests to the node
 * itself; nothing is loaded from anywhere, and no text can become markup.
 */
export async function loadAdminPage(): Promise<Page> {
  const { script, style }: PageParts = existsSync(BUILT)
    ? JSON.parse(await readFile(BUILT, 'utf8'))
    : await bundlePage()
  const policy = [
    "default-src 'none'",
    `style-src '${hash(style)}'`,
    `script-src '${hash(script)}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ]
  return {
    html: `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>roomful node</title>
    <link rel="icon" href="data:," />
    <style>${style}</style>
  </head>
  <body>
    <div id="page"></div>
    <script type="module">${script}</script>
  </body>
</html>
`,
    headers: {
      'content-security-policy': policy.join('; '),
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cache-control': 'no-store',
    },
  }
}

const hash = (text: string): string => `sha256-${createHash('sha256').update(text).digest('base64')}`
