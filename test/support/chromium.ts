import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type Browser, chromium } from 'playwright-core'
import { findOrInstall } from './debian-package.ts'

/** Programs in PATH, in the order of preference. A page in the headless shell takes a third of the CPU time, because it starts no browser windows. */
const NAMES = [
  'chromium-headless-shell',
  'chromium',
  'chromium-browser',
  'google-chrome',
  'google-chrome-stable',
]
const ELSEWHERE = [
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
  'C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe',
]
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** Returns the path of a Chromium or Chrome: `CHROME_PATH`, else from PATH, else installed with apt-get if that is possible. */
function chromiumPath(): string {
  const given = process.env.CHROME_PATH
  if (given) {
    if (existsSync(given)) return given
    throw new Error(`CHROME_PATH is ${given}: no such file; set it to the path of a browser`)
  }
  return findOrInstall('Chromium or Chrome, or CHROME_PATH', ['chromium-headless-shell'], find)
}

/** Starts a headless browser. The caller closes it. */
export const launchChromium = (): Promise<Browser> =>
  chromium.launch({ executablePath: chromiumPath(), headless: true, args: FLAGS })

function find(): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter)
  return [...NAMES.flatMap((name) => folders.map((folder) => join(folder, name))), ...ELSEWHERE].find(
    existsSync,
  )
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) process.stdout.write(`${chromiumPath()}\n`)
