import { figureRoom } from '../room.ts'

export default figureRoom('none')
