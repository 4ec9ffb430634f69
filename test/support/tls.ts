import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { request as plainRequest } from 'node:http'
import { request } from 'node:https'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { programOr } from './debian-package.ts'
import { newFolder } from './run-folder.ts'

/** A certificate for 127.0.0.1 that vouches for itself, and its key: both PEM, and the files they are in. */
export interface Certificate {
  readonly cert: string
  readonly key: string
  readonly certFile: string
}

const run = promisify(execFile)

/** Makes one with openssl, good for a day. */
export async function makeCertificate(): Promise<Certificate> {
  const folder = await newFolder()
  const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  await run(programOr('openssl'), [
    ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1'],
    ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'],
    ...['-keyout', keyFile, '-out', certFile],
  ])
  const [cert, key] = [await readFile(certFile, 'utf8'), await readFile(keyFile, 'utf8')]
  return { cert, key, certFile }
}

/** What is understood of the options of `fetch`. */
interface Asked {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/**
 * A `fetch` that trusts this certificate (undefined: whom Node trusts), follows no redirect, and takes a connection of its own for each
 * request: that of Node 20 cannot be told whom to trust.
 */
export const fetchTrusting =
  (ca: string | undefined) =>
  (url: string, { method = 'GET', headers = {}, body }: Asked = {}): Promise<Response> =>
    new Promise((resolve, reject) => {
      const send = url.startsWith('https:') ? request : plainRequest
      const asked = send(url, { method, headers: { ...headers }, agent: false, ca }, (answer) => {
        const chunks: Buffer[] = []
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.once('error', reject)
        answer.once('end', () => {
          const told = new Headers(answer.headers as Record<string, string>)
          resolve(new Response(Buffer.concat(chunks), { status: answer.statusCode!, headers: told }))
        })
      })
      asked.once('error', reject)
      asked.end(body)
    })
