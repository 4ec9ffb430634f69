import { connect } from 'node:net'

/** Sends `text` to the server at `url`; resolves with all that it answers until it ends the connection. */
export function rawHttp(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.write(text))
    let received = ''
    socket.on('data', (chunk) => {
      received += chunk.toString()
    })
    socket.on('end', () => socket.end())
    socket.on('close', () => resolve(received))
    socket.on('error', reject)
  })
}

/** The problem document in what `rawHttp` has given. */
export const problemIn = (answer: string) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))
