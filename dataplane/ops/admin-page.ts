import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

/** A web page in one document, with headers that allow no other script. */
export interface Page {
  readonly html: string
  readonly headers: Readonly<Record<string, string>>
}

/** Hosts of tunnels. */
const LOOPBACK = 'http://localhost:* http://127.0.0.1:*'

/** Loads the page of `GET /admin`. It calls its node, and control at `controlUrl` or through a tunnel to the browser's machine. */
export function loadAdminPage(controlUrl: string): Promise<Page> {
  const { origin, pathname } = new URL(controlUrl)
  return loadPage(new URL('../../deploy/admin-page/', import.meta.url), {
    title: 'roomful node',
    connect: `'self' ${origin} ${LOOPBACK}`,
    control: `${origin}${pathname.replace(/\/$/, '')}`,
  })
}

/**
 * Loads the page of a folder: the built one if there is one, else from its sources. Its content security policy allows the page's own style and
 * script by their hashes, and requests to `connect`. Nothing else is loaded, and text cannot become markup.
 */
export async function loadPage(
  folder: URL,
  {
    title,
    connect,
    control,
  }: {
    readonly title: string
    readonly connect: string
    /** Address of the control API, for the script of the page. */
    readonly control?: string
  },
): Promise<Page> {
  const built = new URL('page.json', folder)
  const { script, style }: Awaited<ReturnType<typeof bundlePage>> = existsSync(built)
    ? JSON.parse(await readFile(built, 'utf8'))
    : await bundlePage(folder)
  const policy = [
    "default-src 'none'",
    `style-src '${hash(style)}'`,
    `script-src '${hash(script)}'`,
    `connect-src ${connect}`,
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
    <title>${title}</title>
    <link rel="icon" href="data:," />
    <style>${style}</style>
  </head>
  <body>
    <div id="page"${control === undefined ? '' : ` data-control="${control}"`}></div>
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

/**
 * Bundles script and style of a page from `main.tsx` and `main.css` of a folder, with esbuild. The build does it once. A process that runs from the
 * sources does it at the first request.
 */
export async function bundlePage(folder: URL): Promise<{ readonly script: string; readonly style: string }> {
  const { build } = await import('esbuild')
  const { outputFiles } = await build({
    entryPoints: ['main.tsx', 'main.css'].map((file) => fileURLToPath(new URL(file, folder))),
    bundle: true,
    minify: true,
    write: false,
    outdir: 'page',
    format: 'esm',
    platform: 'browser',
    target: 'es2023',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
    logLevel: 'silent',
  })
  const text = (ending: string) => outputFiles.find(({ path }) => path.endsWith(ending))?.text ?? ''
  return { script: text('.js'), style: text('.css') }
}
