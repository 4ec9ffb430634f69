import { byId } from './dom.ts'
import { chooseName, chosenName } from './login.ts'

const ALLOWED = /^[\p{L}\p{N} _.-]{0,20}$/u

/** Names of this machine. `roomful dev` has a playground, for this machine only. */
const HERE = ['localhost', '127.0.0.1', '[::1]']

/** Front page: stores the player's name, and leads to the pages that this browser can open. */
function main(): void {
  byId('playground', HTMLLIElement).hidden = !HERE.includes(location.hostname)
  const input = byId('name', HTMLInputElement)
  const note = byId('name-note', HTMLElement)
  input.value = chosenName() ?? ''
  byId('name-form', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault())
  input.addEventListener('input', () => {
    const name = input.value.trim()
    const fits = ALLOWED.test(name)
    if (fits) chooseName(name)
    note.textContent = fits
      ? name
        ? 'saved for your next game'
        : ''
      : 'letters, digits, spaces and _ . - only'
  })
}

main()
